"""Tokens a second of one set of rows, by the width that the rows left to the controller draft. Pure look-ups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mtplxd.engine.depth.acceptance import Acceptance, add_tokens
from mtplxd.engine.depth.cost import ENOUGH, CostTable
from mtplxd.engine.depth.seen import DraftRoom

HYSTERESIS = 0.01
"""By how much another depth must pay more before it is taken."""
HOPE = 0.98
"""Acceptance that a position nobody tried lately may have."""
DOUBT = 1.25
"""How far a figure nobody measured may be off."""


class Rates:
    """What each width comes to for these rows now. `given` is the width that rows with a depth of their own set."""

    def __init__(
        self, acceptance: Acceptance, costs: CostTable, rows: Sequence[DraftRoom], given: int
    ) -> None:
        self._acceptance, self._costs, self._rows, self._given = acceptance, costs, rows, given
        self._known: dict[int, float] = {}

    @property
    def timed(self) -> bool:
        """Whether any round was timed."""
        return self._seconds(0) > 0

    def of(self, width: int) -> float:
        """Expected tokens a second of all rows together; 0 where nothing was timed."""
        found = self._known.get(width)
        if found is None:
            tokens = sum(self._acceptance.expected(row.key, _drafts(row, width)) for row in self._rows)
            seconds = self._seconds(width)
            found = self._known[width] = tokens / seconds if seconds else 0.0
        return found

    def best(self, widths: Iterable[int]) -> int:
        """The width that pays most, the narrowest of equals."""
        return max(widths, key=self.of)

    def rounds_to_know(self, width: int) -> int:
        """Rounds until the seconds of a width are known; 0 where they are."""
        rows, widest = len(self._rows), max(width, self._given)
        if not self._costs.known(rows, widest):
            return self._costs.calls_to_know(rows, widest)
        return ENOUGH if self._costs.stale(rows, widest) else 0

    def hopeful(self, width: int, held: int, deepest: int) -> bool:
        """Whether a width would beat the one held if what was not measured lately were as good as it can be.

        What plain decoding takes is always worth knowing.
        """
        doubt = DOUBT if self.rounds_to_know(width) else 1.0
        to_beat = self.of(held) * (1 + HYSTERESIS)
        if width <= held:
            return doubt > 1.0 and (width == 0 or self.of(width) * doubt > to_beat)
        last = deepest if held == 0 else width
        return any(self._hoped(held, wide) * doubt > to_beat for wide in range(width, last + 1))

    def lost(self, width: int, held: int) -> float:
        """Rounds at the width held that would make what a round at this one is expected to fall behind by."""
        seconds = self._seconds(width) / self._seconds(held)
        return max(0.0, seconds * (1 - self.of(width) / self.of(held)))

    def break_even(self, width: int, held: int) -> float:
        """The share of last drafts, once reached, that must be accepted for a width to pay as much as the one held."""
        wanted = self.of(held) * self._seconds(width)
        kept = reached = 0.0
        for row in self._rows:
            drafts = _drafts(row, width)
            worth = add_tokens(self._acceptance.chances(row.key)[:drafts])
            kept += worth[max(drafts - 1, 0)]
            reached += worth[drafts - 1] - (worth[drafts - 2] if drafts > 1 else 0.0) if drafts else 0.0
        return (wanted - kept) / reached if reached else 1.0

    def _hoped(self, held: int, width: int) -> float:
        tokens = 0.0
        for row in self._rows:
            drafts = _drafts(row, width)
            known = self._acceptance.chances(row.key)[: min(held, drafts)]
            tokens += add_tokens([*known, *[HOPE] * (drafts - len(known))])[-1]
        return tokens / self._seconds(width)

    def _seconds(self, width: int) -> float:
        return self._costs.seconds(len(self._rows), max(width, self._given))


def _drafts(row: DraftRoom, width: int) -> int:
    return max(0, min(row.most, width if row.fixed is None else row.fixed))
