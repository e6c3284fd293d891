"""Writes a trained head as an adapter sidecar: published tensor names, bf16, and in the metadata what it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.files import sync_file, sync_folder
from mtplxd.packs.headers import write_tensors
from mtplxd.platform.mlx import mx

FORMAT = "1"
DEPTH_MAX = "8"
DTYPES = {mx.bfloat16: "BF16", mx.float32: "F32", mx.int32: "I32", mx.uint64: "U64"}


def write_sidecar(
    path: Path,
    parameters: Mapping[str, Any],
    draft_vocab: npt.NDArray[np.int32],
    taps: Sequence[int],
    body_fingerprint: str,
) -> None:
    """An AdapterModule's parameters by name, the sorted draft vocabulary and the body they belong to."""
    tensors = {f"mtp.{name}": mx.array(array).astype(mx.bfloat16) for name, array in parameters.items()}
    tensors["mtp.draft_vocab"] = mx.array(draft_vocab)
    metadata = {
        "format": FORMAT,
        "layout": "adapter",
        "taps": ",".join(map(str, taps)),
        "recursion": "post",
        "concat": "embed_first",
        "depth_max": DEPTH_MAX,
        "body_fingerprint": body_fingerprint,
    }
    write_arrays(path, tensors, metadata)


def write_arrays(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """A safetensors file, replaced atomically; the same arrays give the same bytes."""
    ordered = dict(sorted(arrays.items()))
    layout = {name: (DTYPES[array.dtype], tuple(array.shape)) for name, array in ordered.items()}
    contents = ((name, _bytes_of(array)) for name, array in ordered.items())
    partial = path.with_name(f".{path.stem}.partial")
    write_tensors(partial, layout, contents, metadata)
    sync_file(partial)
    partial.rename(path)
    sync_folder(path.parent)


def _bytes_of(array: Any) -> bytes:
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array).tobytes()
