"""The paired measurement: makes the planned answers one after the other and keeps the timed ones.

Knows the order and the clock; how an answer is made is the runner's, what comes of the numbers is `summary`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mtplxd.errors import Cancelled
from mtplxd.tune.plan import AUTO, Step
from mtplxd.tune.summary import Row, Run, summarise

Poll = Callable[[], str | None]
"""Gives the origin of a cancel, None to go on; asked between rounds."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Timed answers done and in all; `eta_s` 0 while nothing is known."""

    done: int
    total: int
    eta_s: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """The rows, the answers behind them, and the order these were made in."""

    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    order: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Runner(Protocol):
    """Makes one answer on a model."""

    def answer(self, step: Step, poll: Poll) -> Run:
        """Makes it. Raises Cancelled within a round of `poll` asking for the end."""


def measure(
    runner: Runner,
    steps: Sequence[Step],
    report: Callable[[Progress], None],
    poll: Poll,
    clock: Callable[[], float],
) -> Measurement:
    """Makes every answer of the plan. Raises Cancelled, and what the runner raises."""
    begin = clock()
    runs: list[Run] = []
    total = sum(step.timed for step in steps)
    for at, step in enumerate(steps):
        report(Progress(len(runs), total, _eta(steps, at, clock() - begin)))
        if origin := poll():
            raise cancelled(origin)
        run = runner.answer(step, poll)
        if step.timed:
            runs.append(run)
    report(Progress(total, total, 0.0))
    order = tuple(step.name for step in steps if step.timed)
    return Measurement(tuple(summarise(runs)), tuple(runs), order, _degradations(runs))


def cancelled(origin: str) -> Cancelled:
    """The error of a measurement that somebody ended."""
    return Cancelled("the measurement was cancelled", f"by {origin}", "start it again")


def _eta(steps: Sequence[Step], done: int, spent_s: float) -> float:
    """Seconds to go when the rest takes as long a token as what is done."""
    made = sum(step.tokens for step in steps[:done])
    left = sum(step.tokens for step in steps[done:])
    return spent_s * left / made if made else 0.0


def _degradations(runs: Sequence[Run]) -> tuple[str, ...]:
    """A sentence for each depth whose answers did not stay what they claim to be."""
    counts: dict[tuple[int, str], int] = {}
    for run in runs:
        for reason in run.stats.degraded:
            counts[run.depth, reason] = counts.get((run.depth, reason), 0) + 1
    return tuple(
        f"depth auto: {count} answers found no use in drafting, {reason}"
        if depth == AUTO
        else f"depth {depth}: {count} answers turned to plain decoding, {reason}"
        for (depth, reason), count in sorted(counts.items())
    )
