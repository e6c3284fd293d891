"""One tuning: a plain answer to see how fast the machine is, then every answer of the plan, then rows and drift.

Knows the order and the clock; answers are the runner's, the verdict is `decision`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtplxd.tune.decision import TuneRow
from mtplxd.tune.drift import Drift, drift_of
from mtplxd.tune.effort import Effort, choose_tokens, count_answers
from mtplxd.tune.measure import Poll, Progress, Runner, measure
from mtplxd.tune.plan import WARM_TOKENS, Step, plan_tuning
from mtplxd.tune.prompts import Prompt
from mtplxd.tune.rows import tune_rows
from mtplxd.tune.summary import Run


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure: plain decoding is among the depths; `tokens` 0 takes as many as fit the effort."""

    prompts: tuple[Prompt, ...]
    depths: tuple[int, ...]
    tokens: int
    effort: Effort


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was measured, `tokens` an answer, in `order`."""

    rows: tuple[TuneRow, ...]
    drift: Drift
    tokens: int
    order: tuple[str, ...]
    notes: tuple[str, ...] = ()


def run_tuning(
    runner: Runner,
    asked: Asked,
    report: Callable[[Progress], None],
    poll: Poll,
    clock: Callable[[], float],
) -> Tuning:
    """Raises Cancelled within a round of `poll` asking for it, and what the runner raises."""
    report(Progress(0, 0, 0.0))
    tokens = _look_ahead(runner, asked, poll)
    plan = plan_tuning(asked.prompts, asked.depths, tokens)
    stamped = _Stamped(runner, clock)
    found = measure(stamped, plan.steps, report, poll, clock)
    runs = [run for place, run in enumerate(found.runs) if place not in plan.checks]
    checks = [found.runs[place] for place in plan.checks]
    times = [stamped.times[place] for place in plan.checks]
    drift = drift_of([plain_speed(run) for run in checks], [at - times[0] for at in times])
    return Tuning(tune_rows(runs), drift, tokens, found.order, found.notes)


def plain_speed(run: Run) -> float:
    """Tokens a second by the median round: a stall of the machine is no drift of it."""
    return 1e3 / run.measured_round_ms if run.measured_round_ms else 0.0


def _look_ahead(runner: Runner, asked: Asked, poll: Poll) -> int:
    """Tokens of each answer, by the speed of a first one that is thrown away."""
    first = asked.prompts[0]
    run = runner.answer(Step(first.index, 0, first.seed, WARM_TOKENS, timed=False), poll)
    answers = count_answers(len(asked.prompts), len(asked.depths))
    return choose_tokens(asked.tokens, asked.effort, answers, run.first_s, plain_speed(run))


class _Stamped:
    """A runner that notes when each timed answer began."""

    def __init__(self, runner: Runner, clock: Callable[[], float]) -> None:
        self._runner, self._clock = runner, clock
        self.times: list[float] = []

    def answer(self, step: Step, poll: Poll) -> Run:
        if step.timed:
            self.times.append(self._clock())
        return self._runner.answer(step, poll)


def settle_context(lengths: Sequence[int]) -> int:
    """The prompt length that a row is told with: the middle one."""
    return sorted(lengths)[len(lengths) // 2]
