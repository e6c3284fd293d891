"""A pack: one folder of config, tokenizer, weights and maybe a head, known by its headers alone.

It says what is in the folder; which folder a name means is `resolver`'s, what it is worth is `tiers`'.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss, NotFound
from mtplxd.packs.headers import TensorInfo, read_headers
from mtplxd.packs.layouts.find import find_layout, split_names
from mtplxd.packs.manifest import Manifest, read_manifest

SIDECARS = ("mtp.safetensors", "mtp/weights.safetensors", "model-mtp.safetensors", "model_mtp.safetensors")
"""Where a head's own file is looked for, in this order."""

FAMILIES = {"llama": "llama", "qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe"}
"""Family by model type; a type that is not here is its own family's name."""

_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
)
"""What the memory plan and the head's shapes are computed from, where a config states it."""
_MAY_BE_NULL = ("num_key_value_heads", "head_dim", "intermediate_size")
_INDEX = "model.safetensors.index.json"
AGAIN = "pull or build the pack again"

Located = dict[str, tuple[Path, TensorInfo]]
"""Tensors by stored name, with the file that holds each."""


@dataclass(frozen=True)
class Pack:
    """One model on disk. `headers` holds every tensor of every weights file, sidecar included.

    `stamps` are those files' stamps from before they were read.
    """

    name: str
    path: Path
    config: dict[str, Any]
    manifest: Manifest | None
    headers: dict[Path, dict[str, TensorInfo]]
    sidecar: Path | None
    stamps: dict[Path, tuple[int, ...]] = field(default_factory=dict, compare=False)

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type", "unknown"))

    @property
    def family(self) -> str:
        return FAMILIES.get(self.model_type, self.model_type)

    @property
    def text_config(self) -> dict[str, Any]:
        """The part of the config that describes the language model."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, dict) else self.config

    @property
    def context(self) -> int:
        """Longest sequence in tokens."""
        return context_of(self.text_config) or context_of(self.config)

    @property
    def body_files(self) -> tuple[Path, ...]:
        return tuple(path for path in self.headers if path != self.sidecar)

    @cached_property
    def body_tensors(self) -> Located:
        """Every tensor of the body by name, with its file; a head's in the body's files are not among them."""
        return {name: place for name, place in self._inside.items() if name not in self._built_in}

    @cached_property
    def head_tensors(self) -> Located:
        """Every tensor of the head by stored name, with its file: those of its own file, and where that has not
        all of them, those of the same head in the body's files."""
        path = self.sidecar
        beside: Located = {name: (path, info) for name, info in self.headers[path].items()} if path else {}
        inside = {name: self._inside[name] for name in self._built_in}
        if not beside or (self._same_head(beside, inside) and not beside.keys() & inside.keys()):
            return inside | beside
        return beside

    @cached_property
    def unused_head_tensors(self) -> frozenset[str]:
        """Names of a head in the body's files that the pack's own head file stands in for."""
        return frozenset(name for name in self._built_in if self.head_tensors.get(name) != self._inside[name])

    @property
    def bytes_body(self) -> int:
        """Bytes of the body's tensors as stored."""
        return sum(info.nbytes for _, info in self.body_tensors.values())

    @property
    def bytes_head(self) -> int:
        """Bytes of the head's tensors as stored, wherever they lie."""
        return sum(info.nbytes for _, info in self.head_tensors.values())

    @property
    def changed_files(self) -> tuple[Path, ...]:
        """Weights files that are not what was read any more."""
        return tuple(
            path for path, stamp in self.stamps.items() if not path.is_file() or file_stamp(path) != stamp
        )

    @cached_property
    def _inside(self) -> Located:
        return {name: (path, info) for path in self.body_files for name, info in self.headers[path].items()}

    @cached_property
    def _built_in(self) -> frozenset[str]:
        """Names of a head in the body's files. They are no part of the body, whatever head is used."""
        return split_names(self._inside.keys(), self.family, self.text_config)

    def _same_head(self, one: Located, other: Located) -> bool:
        found = [find_layout(names, self.family, self.text_config) for names in (one, other)]
        return found[0] == found[1]

    @property
    def bytes_total(self) -> int:
        """Bytes of every file of the folder."""
        return sum(
            Path(folder, name).stat().st_size for folder, _, names in os.walk(self.path) for name in names
        )


def read_pack(path: Path, name: str | None = None) -> Pack:
    """The pack in a folder. Reads headers only.

    Raises NotFound when there is no model in it, DataLoss naming the file that is damaged or missing.
    """
    if not os.path.isfile(path / "config.json"):  # false for a path no system could have
        raise NotFound("no model in this folder", path, "it has no config.json, check the path")
    config = _read_table(path / "config.json")
    if not context_of(config) and not context_of(config.get("text_config")):
        raise DataLoss("config does not say the longest sequence", path / "config.json", AGAIN)
    for table in (config, config.get("text_config")):
        _check_sizes(table, path / "config.json")
    sidecar = _find_sidecar(path, config)
    files = [*_find_body_files(path, sidecar), *([sidecar] if sidecar else [])]
    stamps = {file: file_stamp(file) for file in files}
    pack = Pack(
        name=name or path.name,
        path=path,
        config=config,
        manifest=read_manifest(path),
        headers={file: read_headers(file) for file in files},
        sidecar=sidecar,
        stamps=stamps,
    )
    _check_single(pack)
    return pack


def _check_single(pack: Pack) -> None:
    seen: dict[str, Path] = {}
    for file in pack.body_files:
        for name in pack.headers[file]:
            if (other := seen.setdefault(name, file)) != file:
                raise DataLoss(f"tensor {name} is in two weights files", f"{other.name}, {file.name}", AGAIN)


def file_stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced. Raises OSError without one."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def context_of(config: Any) -> int:
    """Longest sequence a config states, 0 when it states none."""
    found = [config.get(name) for name in _CONTEXT_NAMES] if isinstance(config, dict) else []
    return next((size for size in found if type(size) is int and size > 0), 0)


def _check_sizes(table: Any, file: Path) -> None:
    for name in _SIZES if isinstance(table, dict) else ():
        size = table.get(name, 1)
        if size is None and name in _MAY_BE_NULL:
            continue
        if type(size) is not int or size < 1:
            raise DataLoss("config has a size that is no whole number above 0", f"{name} in {file}", AGAIN)


def _find_sidecar(path: Path, config: dict[str, Any]) -> Path | None:
    """The head's own file: the one the config names, else the first of the usual ones."""
    extra = config.get("mlx_lm_extra_tensors")
    named = extra.get("mtp_file") if isinstance(extra, dict) else None
    if named is None:
        return next((path / name for name in SIDECARS if (path / name).is_file()), None)
    file = path / _checked_name(named, f"mtp_file in {path / 'config.json'}")
    if not file.is_file():
        raise DataLoss("the head's file is missing", file, AGAIN)
    return file


def _checked_name(name: Any, where: str) -> str:
    """A weights file is a safetensors file inside the folder. Raises DataLoss naming it."""
    inside = isinstance(name, str) and not Path(name).is_absolute() and ".." not in Path(name).parts
    if not inside or "\0" in name:
        raise DataLoss(f"a weights file outside the folder, {name!r}", where, AGAIN)
    if not name.endswith(".safetensors"):
        raise DataLoss(f"{name!r} is no safetensors file, others are never opened", where, AGAIN)
    return str(name)


def _find_body_files(path: Path, sidecar: Path | None) -> list[Path]:
    if (path / _INDEX).is_file():
        names = _shard_names(path / _INDEX)
    else:
        found = sorted(file.name for file in path.glob("*.safetensors"))
        names = [name for name in found if name.startswith("model")] or found
    names = [name for name in names if name not in SIDECARS and path / name != sidecar]
    if not names:
        others = sorted(file.name for end in ("bin", "pt", "pth", "ckpt") for file in path.glob(f"*.{end}"))
        why = f", {others[0]} is no safetensors file and is never opened" if others else ""
        raise DataLoss(f"no weights in this folder{why}", path, AGAIN)
    if missing := [name for name in names if not (path / name).is_file()]:
        raise DataLoss("weights file is missing", path / missing[0], AGAIN)
    return [path / name for name in names]


def _shard_names(index: Path) -> list[str]:
    shards = _read_table(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise DataLoss("damaged index of weights files", index, AGAIN)
    return sorted({_checked_name(name, str(index)) for name in shards.values()})


def _read_table(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataLoss("damaged file", path, AGAIN) from None
    if not isinstance(content, dict):
        raise DataLoss("damaged file, it is not a table", path, AGAIN)
    return content
