"""Which depth a measurement speaks for, if any. Pure: rows and drift in, a verdict out; saving is others'.

A depth wins when the interval of its ratio to plain decoding lies above 1 and its head has drafts accepted. Of winners
the shallowest is taken; a deeper one only when the interval of the two's own ratio lies above 1 and it is no tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mtplxd.tune.drift import Drift
from mtplxd.tune.intervals import Interval, compare
from mtplxd.tune.plan import AUTO

COLLAPSED = 0.05
"""A head that has no more of its first drafts accepted is broken, whatever the clock says."""
TIE = 0.02
Verdict = Literal[
    "depth_wins", "no_depth_beats_plain", "acceptance_collapsed", "no_baseline", "throttled"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TuneRow:
    """What a depth came to. `speeds` are tokens a second by prompt; `interval` is its ratio to plain decoding, None
    where too few prompts have both; `reached` and `passed` count by position how often it was judged with all before it
    accepted, and accepted then.
    """

    depth: int
    tok_s: float
    interval: Interval | None
    tokens_per_round: float
    acceptance_by_position: tuple[float, ...]
    round_ms: float
    rounds: int
    speeds: Mapping[int, float] = field(default_factory=dict)
    reached: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()

    @property
    def collapsed(self) -> bool:
        """Whether it drafts in vain, or not at all."""
        return not self.acceptance_by_position or self.acceptance_by_position[0] <= COLLAPSED

    @property
    def name(self) -> str:
        """The depth in words."""
        return "auto" if self.depth == AUTO else f"depth {self.depth}"


@dataclass(frozen=True, slots=True)
class Decision:
    """`depth` is the winner's, None without one; `message` says it in a sentence."""

    verdict: Verdict
    message: str
    depth: int | None = None


def decide(rows: Sequence[TuneRow], drift: Drift, *, accept_throttled: bool = False) -> Decision:
    """The verdict over rows of all depths, shallowest first, the chosen depth last, plain decoding among them."""
    plain = next((row for row in rows if row.depth == 0), None)
    drafting = [row for row in rows if row.depth != 0]
    if plain is None or not plain.speeds or not any(row.interval for row in drafting):
        return Decision("no_baseline", "plain decoding was not measured beside a depth: nothing is decided")
    if drift.throttled and not accept_throttled:
        return Decision("throttled", _say_throttled(drift))
    winners = [row for row in drafting if row.interval and row.interval.above_one and not row.collapsed]
    if winners:
        best = _prefer(winners)
        return Decision("depth_wins", _say_wins(best), best.depth)
    if all(row.collapsed for row in drafting):
        return Decision("acceptance_collapsed", _say_collapsed(drafting))
    return Decision("no_depth_beats_plain", _say_none(drafting))


def _prefer(winners: Sequence[TuneRow]) -> TuneRow:
    best = winners[0]
    for deeper in winners[1:]:
        found = compare(deeper.speeds, best.speeds)
        if found is not None and found.above_one and found.ratio > 1 + TIE:
            best = deeper
    return best


def _say_wins(row: TuneRow) -> str:
    assert row.interval is not None
    return f"{row.name} decodes at {_say_interval(row.interval)}"


def _say_none(rows: Sequence[TuneRow]) -> str:
    best = max(rows, key=lambda row: row.interval.ratio if row.interval else 0.0)
    assert best.interval is not None
    why = "" if best.interval.ratio <= 1 else ", which may be chance"
    return (
        f"no depth beats plain decoding here: the best, {best.name}, is {_say_interval(best.interval)}{why}"
    )


def _say_collapsed(rows: Sequence[TuneRow]) -> str:
    best = max((row.acceptance_by_position[0] for row in rows if row.acceptance_by_position), default=0.0)
    return f"the head's drafts are not accepted ({best:.0%} of the first ones): no depth can win"


def _say_throttled(drift: Drift) -> str:
    first = drift.points[0].tok_s
    far = max(drift.points, key=lambda point: abs(point.tok_s - first))
    return (
        f"plain decoding went from {first:.1f} to {far.tok_s:.1f} tok/s during the run: nothing is decided; "
        "let the machine rest, or accept it with --accept-throttled"
    )


def _say_interval(found: Interval) -> str:
    return f"{found.ratio:.2f} × plain (95 % sure: {found.low:.2f} to {found.high:.2f})"
