"""What rows take in the caches they share: bytes, from how many rows there are and how long the longest is.

Arithmetic alone. What one row of a model takes is measured from its caches; what a machine may give is the memory
plan's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtplxd.packs.memory import Footprint

STEP = 256
"""Slots that capacity grows by; what the caches grow by."""


@dataclass(frozen=True, slots=True)
class RowHold:
    """A row as memory sees it. Rows that name the same `batch` share caches, or will when they are prefilled.

    `length` is the positions it has, or its whole prompt while that is prefilled; `most` is what it may come to have.
    """

    id: str
    batch: str
    footprint: Footprint
    length: int
    most: int

    def after(self, more: int) -> int:
        """Positions once it has got so many more."""
        return max(self.length, min(self.length + more, self.most))


@dataclass(frozen=True, slots=True)
class Held:
    """What the caches of a batch have room for now: rows, and slots a row. They keep some of it when rows leave."""

    room: int = 0
    slots: int = 0


def padded(footprint: Footprint, rows: int, longest: int, held: Held | None = None) -> int:
    """Bytes of rows that share caches, which have or will have this room: every row has the longest's whole steps."""
    held = held or Held()
    wanted = -(-max(longest, 1) // STEP) * STEP
    if 2 * rows <= held.room or held.slots - wanted >= max(STEP, held.slots // 4):
        return footprint.bytes(rows, wanted)
    return footprint.bytes(_grown(held.room, rows), max(held.slots, wanted))


def bytes_of(rows: Sequence[RowHold], more: int = 0, held: Mapping[str, Held] | None = None) -> int:
    """Bytes of all these rows once each has `more` positions; `held` by the batch's name."""
    batches: dict[str, list[RowHold]] = {}
    for row in rows:
        batches.setdefault(row.batch, []).append(row)
    return sum(
        padded(
            members[0].footprint,
            len(members),
            max(row.after(more) for row in members),
            (held or {}).get(batch),
        )
        for batch, members in batches.items()
    )


def _grown(room: int, rows: int) -> int:
    """Room grows by halves."""
    room = max(room, min(rows, 1))
    while room < rows:
        room += max(1, room // 2)
    return room
