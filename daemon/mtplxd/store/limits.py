"""What the store on disk may take, and what must go when it takes more. Pure: sizes, readings, clock are arguments."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

GIB = 1 << 30
HOUR_S = 3600.0
BUCKET_S = 60.0
SLACK = 64
"""Where blocks must go, one part in so many of the size is freed at once, so that this is not asked at each block."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes. `size` bounds the whole folder; below `free_floor` free bytes on its volume nothing is written;
    `hourly_writes` bounds what is written within any hour; `queue` what waits for the writer."""

    size: int = 16 * GIB
    free_floor: int = 10 * GIB
    hourly_writes: int = 128 * GIB
    queue: int = 512 << 20


class Resident(Protocol):
    """A block as eviction sees it. `used` grows with each use of any block; `holds` are those who need it now."""

    @property
    def name(self) -> bytes: ...

    @property
    def parent(self) -> bytes: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def used(self) -> int: ...

    @property
    def holds(self) -> int: ...


def choose_evicted(blocks: Iterable[Resident], need: int) -> list[bytes]:
    """Names whose removal, in this order, frees `need` bytes, or all that may go where that is less.

    The least recently used go first, yet none before what follows it: a block without its beginning serves nobody. So
    whatever comes before a held block stays as well.
    """
    if need <= 0:
        return []
    resident = {block.name: block for block in blocks}
    followers = dict.fromkeys(resident, 0)
    for block in resident.values():
        if block.parent in followers:
            followers[block.parent] += 1
    ends = [(block.used, name) for name, block in resident.items() if not followers[name] and not block.holds]
    heapq.heapify(ends)
    chosen: list[bytes] = []
    while need > 0 and ends:
        block = resident[heapq.heappop(ends)[1]]
        chosen.append(block.name)
        need -= block.nbytes
        if (parent := resident.get(block.parent)) is not None:
            followers[parent.name] -= 1
            if not followers[parent.name] and not parent.holds:
                heapq.heappush(ends, (parent.used, parent.name))
    return chosen


def to_free(limits: Limits, taken: int, coming: int) -> int:
    """Bytes that must go before `coming` more are written to a folder that takes `taken`; 0 where there is room."""
    over = taken + coming - limits.size
    return over + limits.size // SLACK if over > 0 else 0


class WriteBudget:
    """What was written within the last hour. Where the clock was set back, it counts as if it had stood still.

    It outlives a restart as pairs of an age in seconds and bytes: time in which nobody watched does not count, so
    neither a clock that was set nor a process that starts again and again makes it larger.
    """

    def __init__(self, limit: int, now: float, spent: Iterable[tuple[float, int]] = ()) -> None:
        self.limit = limit
        self._spent: deque[tuple[float, int]] = deque(
            (now - age, nbytes)
            for age, nbytes in sorted(spent, reverse=True)
            if 0 <= age < HOUR_S and nbytes > 0
        )

    def left(self, now: float) -> int:
        """Bytes that may be written now."""
        self._follow(now)
        while self._spent and now - self._spent[0][0] >= HOUR_S:
            self._spent.popleft()
        return max(0, self.limit - sum(nbytes for _, nbytes in self._spent))

    def spend(self, nbytes: int, now: float) -> None:
        """Counts bytes that were written."""
        self._follow(now)
        if self._spent and now - self._spent[-1][0] < BUCKET_S:
            begin, before = self._spent.pop()
            self._spent.append((begin, before + nbytes))
        else:
            self._spent.append((now, nbytes))

    def ages(self, now: float) -> list[tuple[float, int]]:
        """What `spent` takes when it is made again."""
        self._follow(now)
        return [(now - at, nbytes) for at, nbytes in self._spent]

    def _follow(self, now: float) -> None:
        if self._spent and (back := self._spent[-1][0] - now) > 0:
            self._spent = deque((at - back, nbytes) for at, nbytes in self._spent)
