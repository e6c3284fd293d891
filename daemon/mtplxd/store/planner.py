"""Which of the blocks that there are a prompt goes on behind. Pure: what there is and what is needed are arguments.

A row can go on behind a block that restores: every layer's state is told there, and slots of windows reach back far
enough. A row that drafts needs the head's part of every block. Where only the body's is there, its head may begin anew
behind it, as it does behind pairs that were dropped; that is done for rows whose text does not depend on drafts, where
it saves more than the positions that are read anew for the head's sake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAPPED, PASSES, RESTORES = range(3)
"""Grades of a part of a block: some slots of a window are missing; a row can come past it; a row can go on behind it,
and behind those of any higher grade."""
FRESH = 64
"""Positions read anew where a head begins anew, so that it drafts from something; as many must be saved at least."""


@dataclass(frozen=True, slots=True)
class There:
    """What there is of a block: the grade of each part, None where there is none of it."""

    body: int | None = None
    head: int | None = None

    def best(self, other: There) -> There:
        """The better of each part."""
        return There(_better(self.body, other.body), _better(self.head, other.head))


@dataclass(frozen=True, slots=True)
class Need:
    """What a row asks for: at most `total` positions, all of its prompt but the last, in blocks of `block`.

    It goes on behind multiples of `align` alone, and behind tails if `tails`. `reach` is how far back the slots of its
    windows must go. A row that `drafts` may do so with a head that begins anew if `anew`.
    """

    total: int
    block: int
    drafts: bool = False
    anew: bool = True
    tails: bool = True
    align: int = 1
    reach: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The first `count` blocks, and a tail of so many positions behind them. `headed` says that the head's part of all
    of them is used as well."""

    count: int = 0
    tail: int | None = None
    headed: bool = False

    def length(self, block: int) -> int:
        """How many positions that are."""
        return self.count * block + (self.tail or 0)


Tails = Sequence[tuple[int, There]]


def plan(there: Sequence[There], tails: Sequence[Tails], need: Need) -> Plan:
    """The longest beginning that a row can go on behind. `there` are whole blocks from the first on, `tails[i]` the
    tails behind i of them."""
    if not need.drafts:
        return _longest(there, tails, need, need.total, headed=False)
    headed = _longest(there, tails, need, need.total, headed=True)
    if need.anew:
        anew = _longest(there, tails, need, need.total - FRESH, headed=False)
        if anew.length(need.block) - headed.length(need.block) >= FRESH:
            return anew
    return headed


def _longest(there: Sequence[There], tails: Sequence[Tails], need: Need, most: int, *, headed: bool) -> Plan:
    best, gap = Plan(headed=headed), 0
    for count in range(len(there) + 1):
        begin = count * need.block
        if begin > most:
            break
        if count:
            grade = _grade(there[count - 1], headed)
            if grade is None:
                break
            if grade >= RESTORES and gap <= max(0, begin - need.reach) and begin % need.align == 0:
                best = Plan(count, None, headed)
            if grade == GAPPED:
                gap = begin
        fitting = [
            length
            for length, tail in (tails[count] if need.tails and count < len(tails) else ())
            if begin + length <= most
            and (_grade(tail, headed) or 0) >= RESTORES
            and gap <= max(0, begin + length - need.reach)
        ]
        if fitting:
            best = Plan(count, max(fitting), headed)
    return best


def _grade(there: There, headed: bool) -> int | None:
    """What a block is good for: as much as its worst part."""
    if there.body is None or (headed and there.head is None):
        return None
    return min(there.body, there.head) if headed and there.head is not None else there.body


def _better(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
