"""Owns the on-disk form of training data: one folder of numbered shards, each written whole or not at all.

A shard is a block of rows of equal length with everything that training needs from the target, so that the target
never runs again. It does not know how rows are made (`rollout`) or used (`trainer`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

FORCED, GENERATED, ASKED = 0, 1, 2
TOP = 64
"""How many of the target's largest logits are kept of every place, however its rows are made."""
FIELDS = ("tokens", "origin", "taps", "top_ids", "top_logprobs", "logsumexp")
DRAWN, HELD_OUT_ROWS = "data", "held-out"
"""A run's folders of shards: those that are trained on, and those that heads are compared on."""
Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Shard:
    """B rows of S tokens, with T taps of H values and the target's K largest log-probabilities after every token.

    tokens [B, S] uint16 or int32 · origin [B, S] uint8 (FORCED by the prompt, GENERATED answer, ASKED: a question that
    the target made up) · taps [B, S, T, H] float16 · top_ids [B, S, K] and top_logprobs [B, S, K] float16 (temperature
    1, descending) · logsumexp [B, S, 2] float32 of the full vocabulary at temperature 1 and 0.6.
    """

    tokens: Array
    origin: Array
    taps: Array
    top_ids: Array
    top_logprobs: Array
    logsumexp: Array


@dataclass(frozen=True)
class Share:
    """The part of a folder's shards that one of `parts` processes makes; `part` counts from 1."""

    part: int
    parts: int

    def of(self, count: int) -> range:
        """The numbers of its shards, of `count` in all."""
        return range(count * (self.part - 1) // self.parts, count * self.part // self.parts)


WHOLE = Share(1, 1)


def shard_path(folder: Path, index: int) -> Path:
    return folder / f"shard-{index:05d}"


def write_shard(folder: Path, index: int, shard: Shard) -> None:
    """Writes the shard beside its final name and renames it, so that a killed writer leaves no half shard."""
    final = shard_path(folder, index)
    partial = final.with_suffix(".partial")
    partial.mkdir(parents=True, exist_ok=True)
    for name in FIELDS:
        with (partial / f"{name}.npy").open("wb") as file:
            np.save(file, getattr(shard, name))
            file.flush()
            os.fsync(file.fileno())
    partial.rename(final)


def read_shard(folder: Path, index: int) -> Shard:
    """The shard memory-mapped, read-only."""
    path = shard_path(folder, index)
    return Shard(**{name: np.load(path / f"{name}.npy", mmap_mode="r") for name in FIELDS})


def read_shards(folder: Path) -> list[Shard]:
    """All complete shards, in the order of their numbers."""
    return [read_shard(folder, index) for index in list_shards(folder)]


def list_shards(folder: Path) -> list[int]:
    """The numbers of the complete shards, ascending."""
    found = (path.name for path in folder.glob("shard-*") if path.is_dir() and not path.suffix)
    return sorted(int(name.removeprefix("shard-")) for name in found)
