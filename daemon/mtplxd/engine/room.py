"""Memory of what is in service: who may come in, who must go, who comes back. Decides by policy; moves no row.

The policy itself is `scheduling`'s; here it is asked about what there is at this moment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from mtplxd.engine.batch import Batch
from mtplxd.engine.footprint import room_of
from mtplxd.engine.prefixes import Prefixes
from mtplxd.engine.request import BACKGROUND, Request
from mtplxd.engine.scheduling.admission import HEADROOM, Admit, Kept, admit
from mtplxd.engine.scheduling.footprint import Held, RowHold, bytes_of
from mtplxd.engine.scheduling.preemption import Relief, make_room, make_way, next_back
from mtplxd.engine.served import Served, hold_of, view_aside, view_row

Budget = Callable[[int], int]
"""Bytes that contexts may take in all, from those they take now."""
GROWTH = 32
"""Positions that every row must have room for before a turn: more than a round makes, or a row's last one takes."""


class Room:
    """The memory of one service. `serving` are rows that have their place, `aside` those that gave it up."""

    def __init__(self, max_rows: int, budget: Budget | None, prefixes: Prefixes | None) -> None:
        self._max_rows, self._prefixes = max_rows, prefixes
        self._budget: Budget = budget or (lambda _: sys.maxsize)
        self.held, self._most, self._on_the_way = 0, sys.maxsize, 0

    def measure(
        self, serving: Iterable[Served], aside: Iterable[Served], batches: Mapping[str, Batch]
    ) -> None:
        """Takes in what the rows hold now, what is on its way into them, and what contexts may take; whoever holds a
        lock asks only afterwards. What rows have no use for is how much may be on its way."""
        serving, copies = [*serving], sum(one.bytes_aside for one in aside)
        self._on_the_way = self._prefixes.on_the_way if self._prefixes else 0
        self.held = self._bytes_of(serving, batches) + copies + self._on_the_way
        self._most = self._budget(self.held + (self._prefixes.nbytes if self._prefixes else 0))
        if self._prefixes:
            rows = bytes_of([view_row(one).hold for one in serving], HEADROOM, _room_in(batches))
            self._prefixes.bound(self._most - rows - copies)

    def judge(
        self,
        request: Request,
        length: int,
        serving: Sequence[Served],
        aside: Sequence[Served],
        batches: Mapping[str, Batch],
    ) -> Relief | None:
        """What has to go so that a row of `length` positions can come in; None where it has to wait."""
        full = len(serving) >= self._max_rows
        if full and (request.priority == BACKGROUND or not any(one.background for one in serving)):
            return None  # nobody gives a place up: many who wait are asked each turn
        coming, budget, kept, held = self._picture(request, length, aside, batches)
        rows = [view_row(one) for one in serving]
        if not full:
            verdict = admit(coming, [row.hold for row in rows], budget, kept, held)
            if isinstance(verdict, Admit):
                return Relief(verdict.free)
        if request.priority == BACKGROUND:
            return None
        return make_way(coming, rows, self._max_rows, budget, kept, held)

    def relieve(
        self, serving: Sequence[Served], aside: Sequence[Served], batches: Mapping[str, Batch]
    ) -> Relief:
        """What has to go so that everybody can go on: for what is on its way, only what is kept of prompts."""
        budget, kept, held = self._now(aside, batches)
        rows = [view_row(one) for one in serving]
        needed = bytes_of([row.hold for row in rows], GROWTH, held) + kept.copies
        return make_room(rows, max(budget, min(self._most, needed)), kept, GROWTH, held)

    def next_back(
        self,
        serving: Sequence[Served],
        aside: Sequence[Served],
        batches: Mapping[str, Batch],
        now: float,
        *,
        interactive_waits: bool,
    ) -> tuple[Served, Relief] | None:
        """Who comes back now, and what has to go for it."""
        chosen = next_back([view_aside(one) for one in aside], interactive_waits, now)
        if chosen is None or len(serving) >= self._max_rows:
            return None
        [back] = [one for one in aside if one.ticket.id == chosen.id]
        others = [one for one in aside if one is not back]
        length = len(back.stream.row.tokens)
        coming, budget, kept, held = self._picture(back.request, length, others, batches)
        verdict = admit(coming, [view_row(one).hold for one in serving], budget, kept, held)
        return (back, Relief(verdict.free)) if isinstance(verdict, Admit) else None

    def free_snapshots(self, nbytes: int) -> None:
        """Drops so much of what is kept of prompts."""
        if self._prefixes and nbytes:
            self._prefixes.give_up(nbytes)

    def _picture(
        self, request: Request, length: int, aside: Sequence[Served], batches: Mapping[str, Batch]
    ) -> tuple[RowHold, int, Kept, Mapping[str, Held]]:
        return hold_of(request, length), *self._now(aside, batches)

    def _now(
        self, aside: Sequence[Served], batches: Mapping[str, Batch]
    ) -> tuple[int, Kept, Mapping[str, Held]]:
        kept = Kept(self._prefixes.nbytes if self._prefixes else 0, sum(one.bytes_aside for one in aside))
        return self._most - self._on_the_way, kept, _room_in(batches)

    def _bytes_of(self, serving: Iterable[Served], batches: Mapping[str, Batch]) -> int:
        return bytes_of([view_row(one).hold for one in serving], 0, _room_in(batches))


def _room_in(batches: Mapping[str, Batch]) -> dict[str, Held]:
    return {name: room_of([*batch.cache, *batch.head_cache]) for name, batch in batches.items()}
