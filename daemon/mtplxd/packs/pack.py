"""A pack: one folder of config, tokenizer, weights and maybe a head, known by its headers alone.

It says what is in the folder; which folder a name means is `resolver`'s, what it is worth is `tiers`'.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss, NotFound
from mtplxd.packs.contents import AGAIN, CONFIG, INDEX, SIDECARS, choose_files, named_sidecar
from mtplxd.packs.folder import Folder, LocalFolder, file_stamp
from mtplxd.packs.headers import TensorInfo, read_header
from mtplxd.packs.layouts.find import find_layout, split_names
from mtplxd.packs.layouts.gemma import ASSISTANTS
from mtplxd.packs.manifest import FILE_NAME, Manifest, parse_manifest

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
_LAYER_COUNTS = ("num_hidden_layers", "num_layers")
_MOST_LAYERS = 1 << 12
"""More than any model has; a config that says so must not make a loop of it."""
_MAY_BE_NULL = ("num_key_value_heads", "head_dim", "intermediate_size")
PAIR = "mtplx_pair.json"
"""Marks a folder that holds a body and its drafter side by side."""
TARGET, ASSISTANT = "target", "assistant"

Located = dict[str, tuple[Path, TensorInfo]]
"""Tensors by stored name, with the file that holds each."""


@dataclass(frozen=True)
class Pack:
    """One model on disk. `headers` holds every tensor of every weights file, sidecar included.

    `stamps` are those files' stamps from before they were read, `metadata` is the sidecar's. In a pair `path` is
    the folder of both, `assistant` the drafter, and everything else the target's, whose files are in `model_path`.
    """

    name: str
    path: Path
    config: dict[str, Any]
    manifest: Manifest | None
    headers: dict[Path, dict[str, TensorInfo]]
    sidecar: Path | None
    stamps: dict[Path, tuple[int, ...]] = field(default_factory=dict, compare=False)
    metadata: Mapping[str, str] = field(default_factory=dict)
    assistant: Pack | None = None

    @property
    def model_path(self) -> Path:
        """Where config, tokenizer and the body's files are."""
        return self.path / TARGET if self.assistant else self.path

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
        theirs = self.assistant.headers if self.assistant else {}
        return tuple(path for path in self.headers if path != self.sidecar and path not in theirs)

    @cached_property
    def body_tensors(self) -> Located:
        """Every tensor of the body by name, with its file; a head's in the body's files are not among them."""
        return {name: place for name, place in self._inside.items() if name not in self._built_in}

    @cached_property
    def head_tensors(self) -> Located:
        """Every tensor of the head by stored name, with its file: those of its own file, and where that has not
        all of them, those of the same head in the body's files. In a pair, all of the assistant's."""
        if self.assistant:
            return self.assistant.head_tensors
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
    def at_hand(self) -> bool:
        """Whether its weights can be read: not those of a folder elsewhere, of which only headers came over."""
        return all(self.stamps.values())

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


def read_pack(place: Path | Folder, name: str | None = None) -> Pack:
    """The pack in a folder, or the pair. Reads headers only.

    Raises NotFound when there is no model in it, DataLoss naming the file that is damaged or missing.
    """
    folder = LocalFolder(place) if isinstance(place, Path) else place
    path = folder.path
    if folder.has(PAIR):
        return _read_pair(folder, name)
    if not folder.has(CONFIG):
        raise NotFound("no model in this folder", path, "it has no config.json, check the path")
    config = read_table(folder, CONFIG)
    check_config(config, path / CONFIG)
    index = read_table(folder, INDEX) if folder.has(INDEX) else None
    body, own = choose_files(_list_files(folder, config, index), config, index, str(path))
    files = [*body, *([own] if own else [])]
    stamps = {path / file: folder.stamp(file) for file in files}
    read = {file: read_header(folder, file) for file in files}
    pack = Pack(
        name=name or path.name,
        path=path,
        config=config,
        manifest=_read_manifest(folder),
        headers={path / file: header.tensors for file, header in read.items()},
        sidecar=path / own if own else None,
        stamps=stamps,
        metadata=read[own].metadata if own else {},
    )
    _check_single(pack)
    return pack


def _read_pair(folder: Folder, name: str | None) -> Pack:
    read_table(folder, PAIR)
    target, assistant = read_pack(folder.below(TARGET)), read_pack(folder.below(ASSISTANT))
    if assistant.family not in ASSISTANTS:
        raise DataLoss("the pair's assistant is none", f"{assistant.model_type} in {assistant.path}", AGAIN)
    return replace(
        target,
        name=name or folder.path.name,
        path=folder.path,
        manifest=_read_manifest(folder),
        headers={**target.headers, **assistant.headers},
        stamps={**target.stamps, **assistant.stamps},
        assistant=assistant,
    )


def _read_manifest(folder: Folder) -> Manifest | None:
    return parse_manifest(folder.read(FILE_NAME), folder.path / FILE_NAME) if folder.has(FILE_NAME) else None


def _list_files(folder: Folder, config: dict[str, Any], index: dict[str, Any] | None) -> set[str]:
    """Files of the folder itself, and of those in folders below that its config or index may mean."""
    shards = (index or {}).get("weight_map")
    below = {*SIDECARS, named_sidecar(config, str(folder.path))} | set(_texts(shards))
    return folder.names() | {name for name in below if name and "/" in name and folder.has(name)}


def _texts(shards: Any) -> list[str]:
    names = shards.values() if isinstance(shards, dict) else ()
    return [name for name in names if isinstance(name, str) and "\0" not in name]


def _check_single(pack: Pack) -> None:
    seen: dict[str, Path] = {}
    for file in pack.body_files:
        for name in pack.headers[file]:
            if (other := seen.setdefault(name, file)) != file:
                raise DataLoss(f"tensor {name} is in two weights files", f"{other.name}, {file.name}", AGAIN)


def context_of(config: Any) -> int:
    """Longest sequence a config states, 0 when it states none."""
    found = [config.get(name) for name in _CONTEXT_NAMES] if isinstance(config, dict) else []
    return next((size for size in found if type(size) is int and size > 0), 0)


def check_config(config: dict[str, Any], file: Path) -> None:
    """Raises DataLoss naming the field that a model cannot do without, or that is no size."""
    if not context_of(config) and not context_of(config.get("text_config")):
        raise DataLoss("config does not say the longest sequence", file, AGAIN)
    if not str(config.get("model_type")).isprintable():
        raise DataLoss(
            "config has a model_type that is no name", f"{config['model_type']!r} in {file}", AGAIN
        )
    for table in (config, config.get("text_config")):
        _check_sizes(table, file)


def _check_sizes(table: Any, file: Path) -> None:
    for name in _SIZES if isinstance(table, dict) else ():
        size = table.get(name, 1)
        if size is None and name in _MAY_BE_NULL:
            continue
        if type(size) is not int or size < 1:
            raise DataLoss("config has a size that is no whole number above 0", f"{name} in {file}", AGAIN)
    for name in _LAYER_COUNTS if isinstance(table, dict) else ():
        layers = table.get(name)
        if type(layers) is int and layers > _MOST_LAYERS:
            raise DataLoss("config has a size that no model has", f"{name} {layers} in {file}", AGAIN)


def read_table(folder: Folder, name: str) -> dict[str, Any]:
    """A JSON file that holds a table. Raises DataLoss naming it."""
    path = folder.path / name
    try:
        content = json.loads(folder.read(name).decode("utf-8"))
    except (ValueError, RecursionError):
        raise DataLoss("damaged file", path, AGAIN) from None
    if not isinstance(content, dict):
        raise DataLoss("damaged file, it is not a table", path, AGAIN)
    return content
