"""Chooses how many tokens each row drafts, so that the batch commits most tokens a second; plain decoding is a choice.

All rows left to it draft alike: the widest row sets what a round takes, so a narrower one beside it would save nothing.
Rows that ask for a depth of their own have it, and their width is free for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtplxd.engine.depth.acceptance import Acceptance
from mtplxd.engine.depth.cost import CostTable, read_costs
from mtplxd.engine.depth.probing import CREDIT, Budget, Pauses, Try
from mtplxd.engine.depth.rates import HYSTERESIS, Rates
from mtplxd.engine.depth.seen import DraftRoom, RoundSeen

STATE_VERSION = 1
KEEP_ROUNDS = 64
"""Rounds between two states for others to read, and those after which an earlier one's acceptance is not wanted."""


@dataclass(slots=True)
class Held:
    """What is chosen for so many rows until something pays more, and the tries beside it."""

    width: int
    budget: Budget
    pauses: Pauses = field(default_factory=Pauses)
    trying: Try | None = None


class DepthController:
    """The depth of one loaded model's rounds: `choose` before a round, `observe` after it, from one thread.

    `start` is the depth of the first rounds of a pack that nothing is known of; `state` is what `state()` gave earlier.
    Raises ValueError where that is damaged. `latest` is the state of some rounds ago; it never changes once it is
    there, so that other threads may read it.
    """

    def __init__(self, depth_max: int, state: Mapping[str, Any] | None = None, start: int = 1) -> None:
        self._depth_max, self._start = depth_max, min(start, depth_max)
        self._acceptance = Acceptance(depth_max)
        self._costs: dict[str, CostTable] = {}
        self._held: dict[tuple[str, int], Held] = {}
        self._before: tuple[str, int, int] | None = None
        self.rounds = 0
        self.latest: dict[str, Any] = {}
        if state is not None:
            self.adopt(state)

    def choose(self, rows: Sequence[DraftRoom], form: str = "") -> list[int]:
        """Drafts of each row in the round to come."""
        given = max((min(row.fixed, row.most) for row in rows if row.fixed is not None), default=0)
        most = max((row.most for row in rows if row.fixed is None), default=0)
        width = self._choose_width(rows, max(given, 0), min(most, self._depth_max), form) if rows else 0
        return [max(0, min(row.most, width if row.fixed is None else row.fixed)) for row in rows]

    def observe(self, seen: RoundSeen) -> None:
        """Learns from a round, whoever chose its depths."""
        if not seen.rows:
            return
        count, width = len(seen.rows), seen.width
        self.rounds += 1
        self._acceptance.see(seen.rows)
        self._table(seen.form).see(count, width, seen.seconds if self._is_steady(seen) else None)
        self._before = (seen.form, count, width)
        held = self._held.get((seen.form, count))
        if held is not None:
            self._advance(held, seen)
        if self.rounds % KEEP_ROUNDS == 0:
            self.latest = self.state()

    def forget(self, key: str) -> None:
        """Drops what is known of a row that has ended."""
        self._acceptance.forget(key)

    def _choose_width(self, rows: Sequence[DraftRoom], given: int, room: int, form: str) -> int:
        if given >= room:
            return room
        rates = Rates(self._acceptance, self._table(form), rows, given)
        held = self._held.get((form, len(rows)))
        if held is None:
            credit = 0.0 if self._held else CREDIT
            held = self._held[form, len(rows)] = Held(self._first_width(rates), Budget(credit))
        if room < min(held.width + 1, self._depth_max):  # a text's end is near: nothing to learn or to keep
            return rates.best(range(given, room + 1)) if rates.timed else min(held.width, room)
        if held.trying is None:
            self._reconsider(held, rates, given)
            held.trying = self._find_try(held, rates, given, room)
        return max(held.trying.width if held.trying else held.width, given)

    def _first_width(self, rates: Rates) -> int:
        """For a number of rows that was not there before: what pays best by all that is known, else the start."""
        return rates.best(range(self._depth_max + 1)) if rates.timed else self._start

    def _reconsider(self, held: Held, rates: Rates, given: int) -> None:
        """A wider row beside them makes narrower widths the same as its own, and no reason to forget the one held."""
        now = max(held.width, given)
        best = rates.best(range(given, self._depth_max + 1))
        if best != now and rates.of(best) > rates.of(now) * (1 + HYSTERESIS):
            held.width = best
            held.pauses.changed()

    def _find_try(self, held: Held, rates: Rates, given: int, room: int) -> Try | None:
        """Plain decoding is what all else is measured by: what it takes is looked at as soon as anything was timed."""
        now = max(held.width, given)
        for width in (0, now + 1, now - 1) if rates.timed else ():
            if not given <= width <= room or width == now:
                continue
            unknown = rates.rounds_to_know(width)
            baseline = unknown and width == 0 and held.pauses.since >= 1
            if not (baseline or held.pauses.over(plain=now == 0)) or not rates.hopeful(width, now, room):
                continue
            lost = rates.lost(width, now)
            if unknown * lost <= held.budget.left if unknown else held.pauses.pay(lost):
                enough = rates.break_even(width, now) if width > now else 1.0
                return Try(width, max(unknown, 1), lost, enough, new=unknown > 0)
        return None

    def _advance(self, held: Held, seen: RoundSeen) -> None:
        held.budget.fill()
        if held.trying is None:
            held.pauses.rested()
        elif seen.width == held.trying.width:
            if held.trying.new:
                held.budget.spend(held.trying.lost)
            if not held.trying.played(_share_of_last(seen)):
                held.pauses.tried()
                if (
                    held.trying.hit and held.width == 0
                ):  # while nothing is drafted, nothing else tells of such news
                    held.pauses.changed()
                held.trying = None

    def _is_steady(self, seen: RoundSeen) -> bool:
        """A first round that drafts after plain ones feeds the head all they left, and a plain one after others has
        nothing launched ahead: both take longer than the next."""
        if self._before is None:
            return False
        form, count, width = self._before
        return (form, count) == (seen.form, len(seen.rows)) and (width > 0) == (seen.width > 0)

    def _table(self, form: str) -> CostTable:
        return self._costs.setdefault(form, CostTable())

    def state(self) -> dict[str, Any]:
        """What a later controller of the same pack starts with, as JSON values."""
        return {
            "version": STATE_VERSION,
            "acceptance": self._acceptance.state(),
            "seconds": {form: table.state() for form, table in self._costs.items()},
        }

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Takes what an earlier controller of the pack had learnt, where this one has not learnt better by itself.

        Raises ValueError where it is damaged, and takes nothing then.
        """
        acceptance, seconds = state.get("acceptance"), state.get("seconds")
        if state.get("version") != STATE_VERSION or not isinstance(acceptance, dict):
            raise ValueError("a state of another version")
        if not isinstance(seconds, dict):
            raise ValueError("no tables of figures")
        costs = read_costs(seconds)
        earlier = Acceptance(self._depth_max)
        earlier.adopt(acceptance)
        if self.rounds < KEEP_ROUNDS:
            self._acceptance.adopt(acceptance)
        for form, table in costs.items():
            self._table(form).adopt(table)


def _share_of_last(seen: RoundSeen) -> float:
    """Of the rows whose last draft was reached, how many had it accepted; 0 where none was."""
    width = seen.width
    reached = [row.accepted for row in seen.rows if row.decided == width > 0 and row.accepted >= width - 1]
    return sum(accepted >= width for accepted in reached) / len(reached) if reached else 0.0
