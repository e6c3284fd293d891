"""Rows of numbers from timed answers, one row a depth. Pure; the only place where speeds and ratios are computed.

A row's `tok_s` is the median over its answers, `ratio_vs_plain` the median of what each prompt's answer came to
against the same prompt's answer at depth 0, and `efficiency` the median of what each answer's round came to against
the ideal one timed right behind it, so that a slow minute of the machine touches both sides alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from mtplxd.engine.events import Stats
from mtplxd.tune.plan import AUTO


@dataclass(frozen=True, slots=True)
class Run:
    """One timed answer. Seconds count from the request's begin; `prompt` is its index in the suite, `depth` is AUTO
    where it was chosen as the text went.

    `round_ms` is the median of its rounds, 0 where they were not timed one by one; `ideal_round_ms` 0 means not timed.
    """

    prompt: int
    depth: int
    tokens: int
    first_s: float
    last_s: float
    stats: Stats = field(default_factory=Stats)
    ideal_round_ms: float = 0.0
    round_ms: float = 0.0

    @property
    def tok_s(self) -> float:
        """(tokens − 1) / (time of last − time of first token); 0 where one round gave all of them."""
        spent = self.last_s - self.first_s
        return (self.tokens - 1) / spent if spent > 0 else 0.0

    @property
    def measured_round_ms(self) -> float:
        """`round_ms`, else the mean of the rounds after the first, which ends with the first token; 0 without any."""
        if self.round_ms:
            return self.round_ms
        later = self.stats.rounds - 1
        return 1e3 * (self.last_s - self.first_s) / later if later > 0 else 0.0

    @property
    def efficiency(self) -> float:
        """The ideal round over the measured one; 0 where either was not timed."""
        return self.ideal_round_ms / self.measured_round_ms if self.measured_round_ms else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """What one depth came to. 0 stands for what was not measured: no plain answers, no ideal rounds."""

    depth: int
    tok_s: float
    ratio_vs_plain: float
    tokens_per_round: float
    acceptance_by_position: tuple[float, ...]
    round_ms: float
    ideal_round_ms: float
    efficiency: float
    rounds: int
    runs: int


def summarise(runs: Sequence[Run]) -> list[Row]:
    """The rows of all depths, shallowest first, the chosen one last."""
    plain = speeds_by_prompt(run for run in runs if run.depth == 0)
    return [_row(depth, [run for run in runs if run.depth == depth], plain) for depth in _depths(runs)]


def _depths(runs: Sequence[Run]) -> list[int]:
    return sorted({run.depth for run in runs}, key=lambda depth: (depth == AUTO, depth))


def _row(depth: int, runs: Sequence[Run], plain: dict[int, float]) -> Row:
    speeds = speeds_by_prompt(runs)
    rounds = sum(run.stats.rounds for run in runs)
    return Row(
        depth=depth,
        tok_s=_median(speeds.values()),
        ratio_vs_plain=_median(
            speed / plain[prompt] for prompt, speed in speeds.items() if plain.get(prompt)
        ),
        tokens_per_round=sum(run.tokens for run in runs) / rounds if rounds else 0.0,
        acceptance_by_position=_acceptance(runs),
        round_ms=_median(run.measured_round_ms for run in runs),
        ideal_round_ms=_median(run.ideal_round_ms for run in runs),
        efficiency=_median(run.efficiency for run in runs),
        rounds=rounds,
        runs=len(runs),
    )


def speeds_by_prompt(runs: Iterable[Run]) -> dict[int, float]:
    """Each prompt's speed, the median where it was answered more than once."""
    found: dict[int, list[float]] = {}
    for run in runs:
        if run.tok_s:
            found.setdefault(run.prompt, []).append(run.tok_s)
    return {prompt: median(speeds) for prompt, speeds in found.items()}


def _acceptance(runs: Sequence[Run]) -> tuple[float, ...]:
    """Counts pooled over all answers: rounds that accepted a position / rounds in which it was decided."""
    accepted, judged = (
        sum_counts(run.stats.accepted_by_position for run in runs),
        sum_counts(run.stats.judged_by_position for run in runs),
    )
    return tuple(passed / tried if tried else 0.0 for passed, tried in zip(accepted, judged, strict=True))


def sum_counts(counts: Iterable[Sequence[int]]) -> list[int]:
    """Position by position; a shorter one has none of what is beyond it."""
    sums: list[int] = []
    for row in counts:
        sums += [0] * (len(row) - len(sums))
        for position, count in enumerate(row):
            sums[position] += count
    return sums


def _median(values: Iterable[float]) -> float:
    """Of the values that were measured; 0 where none was."""
    known = [value for value in values if value > 0]
    return median(known) if known else 0.0
