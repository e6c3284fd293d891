"""Whether a row may be let in, by memory: now, later, or never. One rule for submit and for every turn.

Pure arithmetic over rows in service and a budget in bytes. Who gives memory up instead is `preemption`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtplxd.engine.scheduling.footprint import Held, RowHold, bytes_of, padded
from mtplxd.errors import ResourceExhausted
from mtplxd.packs.memory import Footprint

HEADROOM = 256
"""New tokens that every row must have room for when one more is let in."""
FIX = "shorten the prompt or --max-tokens, unload a model, or raise --memory-budget"


@dataclass(frozen=True, slots=True)
class RowNeed:
    """Positions a request takes: `now` to begin with, `most` if it makes every token it asks for."""

    now: int
    most: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes held beside the rows in service: `snapshots` of prefixes, given up for any row that asks; `copies` of rows
    set aside, given up after those."""

    snapshots: int = 0
    copies: int = 0

    def to_free(self, spare: int) -> Kept:
        """What of it must go where only so much is left for it."""
        too_much = self.snapshots + self.copies - max(0, spare)
        snapshots = min(self.snapshots, max(0, too_much))
        return Kept(snapshots, max(0, too_much - snapshots))

    def less(self, freed: Kept) -> int:
        """Bytes of it that are left."""
        return self.snapshots + self.copies - freed.snapshots - freed.copies


NOTHING = Kept()


@dataclass(frozen=True, slots=True)
class Admit:
    """It fits, once the engine has given up `free` of what it keeps for later."""

    free: Kept = NOTHING


@dataclass(frozen=True, slots=True)
class Wait:
    """It does not fit beside what is in service."""

    reason: str


@dataclass(frozen=True, slots=True)
class Never:
    """It does not fit in the memory there is, whoever leaves; bytes."""

    needed: int
    available: int

    @property
    def error(self) -> ResourceExhausted:
        """What the one who asked is told."""
        return ResourceExhausted(
            "not enough memory for this context",
            f"{self.needed} bytes are needed, {self.available} are available",
            FIX,
            needed=self.needed,
            available=self.available,
        )


def row_need(prompt: int, max_tokens: int, context: int) -> RowNeed:
    """Positions of a request. One that may go on to the end of the context is not taken to mean that."""
    now = min(prompt + min(max_tokens, HEADROOM), context)
    return RowNeed(now, now if max_tokens >= context else min(prompt + max_tokens, context))


def judge_alone(need: RowNeed, footprint: Footprint, budget: int) -> Never | None:
    """Never, where not even a service with nothing else in it could hold the row to its end."""
    needed = padded(footprint, 1, need.most)
    return Never(needed, max(0, budget)) if needed > budget else None


def admit(
    row: RowHold,
    rows: Sequence[RowHold],
    budget: int,
    kept: Kept = NOTHING,
    held: Mapping[str, Held] | None = None,
) -> Admit | Wait | Never:
    """Whether `row` may come in beside `rows`, all of them with room for `HEADROOM` more tokens.

    Optimistic: not for all the tokens they may make. `budget` is for all caches and what is `kept`; `held` as in
    `bytes_of`. Where the service is empty, whatever can be held to its end is let in.
    """
    needed = bytes_of([*rows, row], HEADROOM, held)
    spare = budget - needed
    if spare >= (kept.copies if rows else 0):
        return Admit(kept.to_free(spare))
    if rows:
        return Wait(f"memory: {needed + kept.copies} bytes would be needed, there are {max(0, budget)}")
    return Never(needed, max(0, budget))
