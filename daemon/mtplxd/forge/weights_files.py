"""Which weights file each tensor of a body goes into, and what the folder says of it. Pure: sizes in, names out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SHARD_BYTES = 4 << 30
"""Largest file, but for a tensor that is larger by itself."""


def split_into_shards(sizes: Mapping[str, int], most: int = SHARD_BYTES) -> list[list[str]]:
    """Names by file, in their order. `sizes` are bytes."""
    shards: list[list[str]] = []
    filled = 0
    for name in sorted(sizes):
        if not shards or filled + sizes[name] > most:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += sizes[name]
    return shards


def shard_names(count: int) -> list[str]:
    """File names as Hugging Face numbers them."""
    return [f"model-{place:05d}-of-{count:05d}.safetensors" for place in range(1, count + 1)]


def index_of(shards: Sequence[Sequence[str]], names: Sequence[str], total: int) -> dict[str, Any]:
    """The index that leads from a tensor to its file."""
    where = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
