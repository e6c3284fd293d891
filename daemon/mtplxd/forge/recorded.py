"""Makes a run's rows from conversations whose token ids were recorded, without saying anything anew.

Owns the form of a recording and who wrote which of its tokens; what the target says about them is `rereading`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from mtplxd.errors import InvalidArgument
from mtplxd.families.protocols import Target
from mtplxd.forge.generating import fill_shards
from mtplxd.forge.pacing import Pace
from mtplxd.forge.rereading import reread
from mtplxd.forge.rollout import Ints, Turns
from mtplxd.forge.shards import ASKED, FORCED, GENERATED, WHOLE, Shard, Share

ROWS = 16
"""Rows of a shard, read in one forward."""
SHORTEST = 8


@dataclass(frozen=True)
class Recording:
    """Blocks of rows [R, S], the rows of a block of one length; `digest` is that of the file they came from."""

    blocks: tuple[Ints, ...]
    digest: str

    @property
    def tokens(self) -> int:
        """How many there are."""
        return sum(block.size for block in self.blocks)

    @property
    def pieces(self) -> list[Ints]:
        """What each shard is made of, [≤ ROWS, S]."""
        return [block[begin : begin + ROWS] for block in self.blocks for begin in range(0, len(block), ROWS)]


def read_recording(path: Path, vocab_size: int) -> Recording:
    """The arrays of an `.npz` file, in the order of their names. Raises InvalidArgument where they are no token ids."""
    try:
        content = path.read_bytes()
        with np.load(path, allow_pickle=False) as arrays:
            blocks = tuple(arrays[name] for name in sorted(arrays.files))
    except (OSError, ValueError, EOFError, AttributeError, BadZipFile) as error:
        raise InvalidArgument(
            f"recorded conversations cannot be read: {error}", path, "give an .npz file"
        ) from error
    if not blocks or not all(_are_ids(block, vocab_size) for block in blocks):
        raise InvalidArgument(
            f"recorded conversations are no rows of token ids of this model (0 to {vocab_size - 1})",
            path,
            "give an .npz file of whole numbers, a conversation a row, made with this model's tokenizer",
        )
    return Recording(tuple(block.astype(np.int32) for block in blocks), hashlib.sha256(content).hexdigest())


def _are_ids(block: npt.NDArray[Any], vocab_size: int) -> bool:
    if block.ndim != 2 or not len(block) or block.shape[1] < SHORTEST or block.dtype.kind not in "iu":
        return False
    return bool((block >= 0).all() and (block < vocab_size).all())


def find_origins(tokens: Ints, turns: Turns) -> npt.NDArray[np.uint8]:
    """Who wrote each token of rows [B, S]: an answer, with the token that ends it, is GENERATED, what leads to it
    ASKED, what the chat template puts around them FORCED. Rows of a model without turns are GENERATED throughout."""
    if not turns.close:
        return np.full(tokens.shape, GENERATED, np.uint8)
    return np.stack([_origins_of_row(row.tolist(), turns) for row in tokens])


def _origins_of_row(row: list[int], turns: Turns) -> npt.NDArray[np.uint8]:
    found = np.full(len(row), ASKED, np.uint8)
    found[: len(turns.first)] = FORCED
    place, answering = len(turns.first), False
    while place < len(row):
        lead = turns.again if answering else turns.close
        if row[place] == turns.end:
            length = len(lead) if row[place : place + len(lead)] == lead[: len(row) - place] else 1
            found[place : place + length] = FORCED
            if answering:
                found[place] = GENERATED
            place, answering = place + length, not answering
        else:
            found[place] = GENERATED if answering else ASKED
            place += 1
    return found


@dataclass(frozen=True)
class RowReader:
    """Reads the shards of a recording with a target."""

    target: Target
    turns: Turns
    pace: Pace

    def make(self, folder: Path, recording: Recording, share: Share = WHOLE) -> None:
        """A share of the shards of a folder, those that are there already as they are."""
        pieces = recording.pieces

        def make(index: int, breathe: Callable[[], None]) -> Shard:
            return reread(self.target, pieces[index], find_origins(pieces[index], self.turns), breathe)

        fill_shards(folder, share.of(len(pieces)), make, self.pace)
