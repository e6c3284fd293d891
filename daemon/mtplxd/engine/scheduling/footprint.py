"""What rows of a model take in its caches: bytes, from how many rows share them and how long the longest is.

Arithmetic alone. What one model's numbers are is measured where its caches are made; what a machine may give is the
memory plan's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STEP = 256
"""Slots that capacity grows by; what the caches grow by."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a model's rows: `position` a slot of the caches that keep every position, body and head together;
    `windows` the most slots of each cache that keeps only the newest, and bytes a slot; `row` whatever the length.
    """

    position: int = 0
    row: int = 0
    windows: tuple[tuple[int, int], ...] = ()

    def bytes(self, rows: int, slots: int) -> int:
        """Of `rows` rows with `slots` slots each."""
        windows = sum(min(most, slots) * each for most, each in self.windows)
        return rows * (self.row + slots * self.position + windows)


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


def padded(footprint: Footprint, rows: int, longest: int) -> int:
    """Bytes of rows that share caches: room grows by halves, and every row has the longest's whole steps."""
    return footprint.bytes(_room(rows), _whole_steps(longest))


def bytes_of(rows: Sequence[RowHold], more: int = 0, actual: Mapping[str, int] | None = None) -> int:
    """Bytes of all these rows once each has `more` positions.

    `actual` is what a batch holds now, by its name: what it holds beyond its rows' needs is not given back at once.
    """
    return sum(
        _of_batch(members, more, (actual or {}).get(batch, 0)) for batch, members in _by_batch(rows).items()
    )


def _of_batch(members: Sequence[RowHold], more: int, actual: int) -> int:
    footprint = members[0].footprint
    wanted = padded(footprint, len(members), max(row.after(more) for row in members))
    return max(wanted, actual)


def _by_batch(rows: Sequence[RowHold]) -> dict[str, list[RowHold]]:
    batches: dict[str, list[RowHold]] = {}
    for row in rows:
        batches.setdefault(row.batch, []).append(row)
    return batches


def _room(rows: int) -> int:
    room = min(rows, 1)
    while room < rows:
        room += max(1, room // 2)
    return room


def _whole_steps(slots: int) -> int:
    return -(-max(slots, 1) // STEP) * STEP
