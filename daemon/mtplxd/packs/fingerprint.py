"""What a body or a head is, by content: one hash over tensors, whatever files, shards or paddings hold them.

The rule is fixed: heads, stored keys and verification records name bodies by it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss
from mtplxd.packs.folder import file_stamp
from mtplxd.packs.headers import REFETCH, TensorInfo, read_headers, read_metadata
from mtplxd.packs.pack import Pack
from mtplxd.packs.remembered import remembered

NOT_DEFINING = frozenset(
    {
        "_name_or_path", "architectures", "attention_dropout", "bos_token_id", "dtype", "eos_token_id",
        "initializer_range", "pad_token_id", "torch_dtype", "transformers_version", "use_cache",
    }
)  # fmt: skip
"""Fields of a config that do not change what the weights compute."""

HEAD_DEFINING = ("taps", "recursion", "concat", "norm_convention", "block")
"""Metadata of a sidecar that changes what its weights compute."""

_CHUNK = 4 * 1024 * 1024
Located = tuple[str, Path, TensorInfo]


def body_fingerprint(pack: Pack) -> str:
    """`sha256:…` of the body: every tensor's name, dtype, shape and bytes by sorted name, and the config's
    model-defining fields. Reads all weights once; remembered while no file's stamp changes.
    """
    return _hash_body(_Body(pack), tuple((path, *file_stamp(path)) for path in pack.body_files))


def head_fingerprint(path: Path) -> str:
    """`sha256:…` of a sidecar: every tensor's name, dtype, shape and bytes by sorted name, and what its metadata says
    of how they are used; remembered likewise.
    """
    return _hash_head(path, file_stamp(path))


def own_head_fingerprint(pack: Pack) -> str:
    """The same of the head a pack uses, in whichever files its tensors lie; an empty text without one.

    Of a drafter with a config of its own, that too.
    """
    located = pack.head_tensors
    if {path for path, _ in located.values()} == {pack.sidecar} and pack.sidecar:
        return head_fingerprint(pack.sidecar)
    stamp = tuple((path, *file_stamp(path)) for path in sorted({path for path, _ in located.values()}))
    trailer = defining_config(pack.assistant.config) if pack.assistant else ""
    return _hash_built_in(_Body(pack), stamp, trailer) if located else ""


@lru_cache(maxsize=32)
def _hash_built_in(body: _Body, stamp: tuple[tuple[Any, ...], ...], trailer: str) -> str:  # noqa: ARG001
    located = body.pack.head_tensors
    tensors = [(name, path, info) for name, (path, info) in located.items()]
    stamps = {path: file_stamp(path) for path, _ in located.values()}
    which = json.dumps([trailer, sorted(located)])
    return remembered("built-in head", stamps, which, lambda: _hash_tensors(tensors, trailer))


@lru_cache(maxsize=32)
def _hash_head(path: Path, stamp: tuple[int, ...]) -> str:
    tensors = [(name, path, info) for name, info in read_headers(path).items()]
    metadata = read_metadata(path)
    defining = {name: metadata[name] for name in HEAD_DEFINING if name in metadata}
    trailer = defining_config(defining) if defining else ""
    return remembered("head", {path: stamp}, trailer, lambda: _hash_tensors(tensors, trailer))


def defining_config(config: dict[str, Any]) -> str:
    """The model-defining fields as canonical JSON; absent and null are the same."""

    def keep(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name: keep(inner)
            for name, inner in value.items()
            if name not in NOT_DEFINING and inner is not None
        }

    return json.dumps(keep(config), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


class _Body:
    """A pack as a cache key: equal when folder and config are."""

    def __init__(self, pack: Pack) -> None:
        self.pack = pack
        self.config = defining_config(pack.config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Body) and (self.pack.path, self.config) == (other.pack.path, other.config)

    def __hash__(self) -> int:
        return hash((self.pack.path, self.config))


@lru_cache(maxsize=32)
def _hash_body(body: _Body, stamp: tuple[tuple[Path | int, ...], ...]) -> str:  # noqa: ARG001
    tensors = [(name, path, info) for name, (path, info) in body.pack.body_tensors.items()]
    stamps = {path: file_stamp(path) for path in body.pack.body_files}
    which = json.dumps([body.config, sorted(body.pack.body_tensors)])
    return remembered("body", stamps, which, lambda: _hash_tensors(tensors, body.config))


def _hash_tensors(tensors: Iterable[Located], trailer: str) -> str:
    digest = hashlib.sha256()
    for name, path, info in sorted(tensors, key=lambda tensor: tensor[0]):
        digest.update(json.dumps([name, info.dtype, list(info.shape)]).encode() + b"\n")
        _hash_range(digest, path, info)
    digest.update(trailer.encode())
    return f"sha256:{digest.hexdigest()}"


def _hash_range(digest: Any, path: Path, info: TensorInfo) -> None:
    left = info.nbytes
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(info.begin)
            while left:
                chunk = file.read(min(left, _CHUNK))
                if not chunk:
                    raise DataLoss("weights file got shorter", path, REFETCH)
                digest.update(chunk)
                left -= len(chunk)
    except OSError as error:
        raise DataLoss("cannot read a weights file", path, error.strerror or "check the disk") from error
