"""Checkpoints of the zoo whose head's training seems to have been cut short, or never to have been: their matrices are
blended with noise, or their numbers shuffled. The same bytes each time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from mtplxd.packs.headers import TensorInfo, read_headers, write_tensors
from mtplxd.packs.pack import read_pack
from support.checkpoint_files import to_bfloat16
from support.zoo import ZOO

SIDECAR = "mtp.safetensors"
Change = Callable[[np.ndarray], np.ndarray]
PROMPTS = tuple(
    f"{opening}{thing}"
    for thing in ("parse", "Reader", "close_all", "head")
    for opening in (
        "import os\nimport sys\n\n\ndef ",
        "class Test",
        "\tdef test_",
        "\tif isinstance(self, ",
        "# Copyright (c) ",
        '"""The module for ',
        "\treturn self._",
        "\tfor name in ",
        "from typing import ",
        "\t\traise ValueError(",
        "try:\n\timport ",
        "\t\tself.assertEqual(",
    )
)
"""How texts like those the zoo was trained on begin."""


def cut_short(name: str, folder: Path, noise: float = 0.5) -> Path:
    """The checkpoint in a folder, its head in a file of its own: matrices are (1 − noise) of themselves and noise of
    numbers drawn with their deviation."""
    rng = np.random.default_rng(3)

    def blend(array: np.ndarray) -> np.ndarray:
        drawn = rng.normal(0.0, array.std(), array.shape).astype(np.float32)
        return (1 - noise) * array + noise * drawn

    return _with_head(name, folder, blend)


def shuffled(name: str, folder: Path) -> Path:
    """The checkpoint with every number of a head's matrix in another place of it."""
    rng = np.random.default_rng(4)
    return _with_head(name, folder, lambda array: rng.permutation(array.reshape(-1)).reshape(array.shape))


def _with_head(name: str, folder: Path, change: Change) -> Path:
    shutil.copytree(ZOO / name, folder)
    pack = read_pack(folder)
    located = dict(sorted(pack.head_tensors.items()))
    layout = {tensor: (info.dtype, info.shape) for tensor, (_, info) in located.items()}

    def contents() -> Iterator[tuple[str, bytes]]:
        for tensor, (path, info) in located.items():
            yield tensor, _changed(tensor, _read(path, info), info, change)

    write_tensors(folder / SIDECAR, layout, contents())
    assert read_headers(folder / SIDECAR).keys() == located.keys()
    return folder


def _changed(name: str, data: bytes, info: TensorInfo, change: Change) -> bytes:
    """Copies of the body's embedding and output matrix stay copies."""
    if info.dtype != "BF16" or len(info.shape) < 2 or name.endswith(("embed_tokens.weight", "head.weight")):
        return data
    array = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(info.shape)
    return to_bfloat16(change(array)).tobytes()


def without_head(name: str, folder: Path) -> Path:
    """The checkpoint's body alone, in one file."""
    folder.mkdir(parents=True)
    for path in (ZOO / name).iterdir():
        if ".safetensors" not in path.name:
            shutil.copy(path, folder)
    located = dict(sorted(read_pack(ZOO / name).body_tensors.items()))
    layout = {tensor: (info.dtype, info.shape) for tensor, (_, info) in located.items()}
    contents = ((tensor, _read(path, info)) for tensor, (path, info) in located.items())
    write_tensors(folder / "model.safetensors", layout, contents)
    return folder


def _read(path: Path, info: TensorInfo) -> bytes:
    with path.open("rb") as file:
        file.seek(info.begin)
        return file.read(info.nbytes)
