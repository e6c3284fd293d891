"""How likely the next drafts of a row are accepted: counts that fade, rows leaning on the pack, the unseen on the seen.

A position's figure is conditional: how often it was accepted of the times it was reached. So a round at any depth
tells of every position up to the first rejection, and depths may change from round to round. Knows no seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, log, sqrt
from typing import Any

from mtplxd.engine.depth.seen import RowSeen

FADE, FADE_IDLE, FADE_SLOW = 0.97, 0.995, 0.998
"""What is left of a count after a round that drafts, after one that does not, and of the pack's long memory."""
FIRST_GUESS, NEXT_GUESS = 0.6, 0.9
"""A head nobody has seen draft, and what a further position keeps of the one before it."""
LEAST = 0.02
"""What a share is taken for at least, and 1 less this at most, where its odds are needed."""
PACK_WEIGHT, GUESS_WEIGHT, SLOW_WEIGHT = 6.0, 3.0, 2.0
"""Drafts that the pack's figure counts as in a row's, the long memory's in the pack's, the guess in that."""
WINDOW, LEAST_JUDGED, SURPRISE = 10, 6.0, 3.0
"""A text has changed where its last rounds lie so many standard deviations from those before."""


@dataclass(slots=True)
class Tally:
    """By position: how often it was reached and how often accepted then, later rounds counting more."""

    reached: list[float] = field(default_factory=list)
    passed: list[float] = field(default_factory=list)

    def fade(self, factor: float) -> None:
        """Lets what was counted count less."""
        self.reached = [count * factor for count in self.reached]
        self.passed = [count * factor for count in self.passed]

    def add(self, decided: int, accepted: int) -> None:
        """Counts one row's round."""
        accepted = min(accepted, decided)
        while len(self.reached) < decided:
            self.reached.append(0.0)
            self.passed.append(0.0)
        for position in range(min(decided, accepted + 1)):
            self.reached[position] += 1
            self.passed[position] += position < accepted

    def at(self, position: int) -> tuple[float, float]:
        """Counts of a position: reached, accepted."""
        return (self.reached[position], self.passed[position]) if position < len(self.reached) else (0.0, 0.0)


@dataclass(slots=True)
class Watched:
    """A tally that starts anew when its latest rounds contradict the earlier ones."""

    tally: Tally = field(default_factory=Tally)
    window: deque[list[tuple[int, int]]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def see(self, drafts: list[tuple[int, int]]) -> None:
        """Takes a round's (decided, accepted) pairs; empty where nothing was drafted."""
        self.tally.fade(FADE if drafts else FADE_IDLE)
        if not drafts:
            return
        for decided, accepted in drafts:
            self.tally.add(decided, accepted)
        self.window.append(drafts)
        if self._contradicted():
            self.tally = Tally()
            for earlier in self.window:
                for decided, accepted in earlier:
                    self.tally.add(decided, accepted)

    def _contradicted(self) -> bool:
        first = [accepted > 0 for drafts in self.window for _, accepted in drafts]
        count, passed = float(len(first)), float(sum(first))
        reached, accepted = self.tally.at(0)
        before = reached - count
        if len(self.window) < WINDOW or before < LEAST_JUDGED:
            return False
        rate = min(max((accepted - passed) / before, 0.05), 0.95)
        return abs(passed - count * rate) > SURPRISE * sqrt(count * rate * (1 - rate) * (1 + count / before))


class Acceptance:
    """The estimates of one pack and of the rows it decodes now."""

    def __init__(self, depth_max: int) -> None:
        self._depth_max = depth_max
        self._slow = Tally()
        self._pack = Watched()
        self._rows: dict[str, Watched] = {}
        self._known: dict[str, list[float]] = {}
        self._worth: dict[str, list[float]] = {}

    def see(self, rows: Iterable[RowSeen]) -> None:
        """Takes a round."""
        drafts = []
        for row in rows:
            mine = [(row.decided, row.accepted)] if row.decided else []
            drafts += mine
            self._rows.setdefault(row.key, Watched()).see(mine)
        self._pack.see(drafts)
        if drafts:
            self._slow.fade(FADE_SLOW)
            for decided, accepted in drafts:
                self._slow.add(decided, accepted)
        self._clear()

    def forget(self, key: str) -> None:
        """Drops a row that has ended; what the pack learnt from it stays."""
        self._rows.pop(key, None)
        self._known.pop(key, None)
        self._worth.pop(key, None)

    def chances(self, key: str) -> list[float]:
        """By position, how likely it is accepted once it is reached; for a row not seen yet, as the pack's are."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._of_row(key)
        return found

    def expected(self, key: str, depth: int) -> float:
        """Tokens that a row is expected to commit in a round that drafts `depth` for it."""
        worth = self._worth.get(key)
        if worth is None:
            worth = self._worth[key] = add_tokens(self.chances(key))
        return worth[depth]

    def _clear(self) -> None:
        self._known.clear()
        self._worth.clear()

    def _of_row(self, key: str) -> list[float]:
        pack = self._known.get("")
        if pack is None:
            pack = self._known[""] = self._of_pack()
        row = self._rows.get(key)
        if row is None:
            return pack
        return [_lean(row.tally, place, PACK_WEIGHT, chance) for place, chance in enumerate(pack)]

    def _of_pack(self) -> list[float]:
        """Each position leans on what it usually is, its odds shifted as those of the one before it are now."""
        found: list[float] = []
        usual = self._usual()
        for place in range(self._depth_max):
            shift = _log_odds(found[-1]) - _log_odds(usual[place - 1]) if place else 0.0
            guess = 1 / (1 + exp(-_log_odds(usual[place]) - shift))
            found.append(_lean(self._pack.tally, place, GUESS_WEIGHT, guess))
        return found

    def _usual(self) -> list[float]:
        found: list[float] = []
        for place in range(self._depth_max):
            guess = found[-1] * NEXT_GUESS if place else FIRST_GUESS
            found.append(_lean(self._slow, place, SLOW_WEIGHT, guess))
        return found

    def state(self) -> dict[str, Any]:
        """What a later controller of the same pack starts with."""
        return {"reached": _rounded(self._slow.reached), "passed": _rounded(self._slow.passed)}

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Takes an earlier long memory in place of its own. Raises ValueError where it is none."""
        reached, passed = _numbers(state.get("reached")), _numbers(state.get("passed"))
        if len(reached) != len(passed) or any(yes > all_ for yes, all_ in zip(passed, reached, strict=True)):
            raise ValueError("more drafts accepted than reached")
        self._slow = Tally(reached, passed)
        self._clear()


def add_tokens(chances: Iterable[float]) -> list[float]:
    """By depth from 0: one token a round and those of the drafts before the first rejection."""
    alive = 1.0
    found = [1.0]
    for chance in chances:
        alive *= chance
        found.append(found[-1] + alive)
    return found


def _lean(tally: Tally, place: int, weight: float, guess: float) -> float:
    reached, passed = tally.at(place)
    return (passed + weight * guess) / (reached + weight)


def _log_odds(share: float) -> float:
    share = min(max(share, LEAST), 1 - LEAST)
    return log(share / (1 - share))


def _rounded(values: list[float]) -> list[float]:
    return [round(value, 4) for value in values]


def _numbers(value: object) -> list[float]:
    if not isinstance(value, list) or len(value) > 64:
        raise ValueError("no list of counts")
    if not all(type(count) in (int, float) and 0 <= count < 1e12 for count in value):
        raise ValueError("a count is no number")
    return [float(count) for count in value]
