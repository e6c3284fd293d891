"""Which of a folder's files hold weights: the body's shards and the head's own file, from names, config and index.

It decides on names alone, so that a folder elsewhere is judged as one on disk is; reading them is `pack`'s.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from mtplxd.errors import DataLoss

SIDECARS = ("mtp.safetensors", "mtp/weights.safetensors", "model-mtp.safetensors", "model_mtp.safetensors")
"""Where a head's own file is looked for, in this order."""
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
AGAIN = "pull or build the pack again"

_UNOPENED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class WeightsFiles(NamedTuple):
    """Names of the body's files, and of the head's own or None."""

    body: tuple[str, ...]
    sidecar: str | None


def choose_files(
    names: Collection[str], config: dict[str, Any], index: dict[str, Any] | None, where: str
) -> WeightsFiles:
    """The weights files of a folder called `where`. `names` are its files, with `/` and relative to it.

    Raises DataLoss naming a file that is missing, no safetensors file, or outside the folder.
    """
    sidecar = _sidecar(names, config, where)
    body = _shards(index, f"{where}/{INDEX}") if index is not None else _unindexed(names)
    body = [name for name in body if name not in SIDECARS and name != sidecar]
    if not body:
        raise DataLoss(f"no weights in this folder{_unopened(names)}", where, AGAIN)
    if missing := [name for name in body if name not in names]:
        raise DataLoss("weights file is missing", f"{where}/{missing[0]}", AGAIN)
    return WeightsFiles(tuple(body), sidecar)


def named_sidecar(config: dict[str, Any], where: str) -> str | None:
    """The head's file that the config names, in the field's own way. Raises DataLoss when it leads elsewhere."""
    extra = config.get("mlx_lm_extra_tensors")
    named = extra.get("mtp_file") if isinstance(extra, dict) else None
    return None if named is None else _checked(named, f"mtp_file in {where}/{CONFIG}")


def _sidecar(names: Collection[str], config: dict[str, Any], where: str) -> str | None:
    named = named_sidecar(config, where)
    if named is None:
        return next((name for name in SIDECARS if name in names), None)
    if named not in names:
        raise DataLoss("the head's file is missing", f"{where}/{named}", AGAIN)
    return named


def _unindexed(names: Collection[str]) -> list[str]:
    found = sorted(name for name in names if name.endswith(".safetensors") and "/" not in name)
    return [name for name in found if name.startswith("model")] or found


def _shards(index: dict[str, Any], where: str) -> list[str]:
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise DataLoss("damaged index of weights files", where, AGAIN)
    texts = {name for name in shards.values() if isinstance(name, str)}  # a shard is named thousands of times
    others = [name for name in shards.values() if not isinstance(name, str)]
    return sorted({_checked(name, where) for name in (*others, *texts)})


def _checked(name: Any, where: str) -> str:
    """A weights file is a safetensors file inside the folder."""
    path = PurePosixPath(name) if isinstance(name, str) else None
    if path is None or path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
        raise DataLoss(f"a weights file outside the folder, {name!r}", where, AGAIN)
    if path.suffix != ".safetensors":
        raise DataLoss(f"{name!r} is no safetensors file, others are never opened", where, AGAIN)
    return str(path)


def _unopened(names: Collection[str]) -> str:
    others = sorted(name for name in names if name.endswith(_UNOPENED))
    return f", {others[0]} is no safetensors file and is never opened" if others else ""
