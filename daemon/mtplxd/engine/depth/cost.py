"""What a round takes: seconds by number of rows and drafts of the widest, learnt from warm rounds. Knows no tokens.

A shape's figure is the lower median of its latest samples, later ones weighing more, so that a stall moves nothing and
a context that grows is followed. The first calls of a shape never count. Shapes without samples follow the fit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from mtplxd.engine.depth.fit import FULL_SAMPLES, Fit, Shape

COLD_CALLS = 1
"""First calls of a shape in a process: kernels are compiled and buffers made."""
SAMPLES, HALF_LIFE, STALE = 31, 150.0, 500
"""Samples kept of a shape; rounds of as many rows until one weighs half; such rounds after which a figure should be
looked at again. Shapes of other rows are compared with others: how old those are tells nothing of this one."""
REFIT = 32
"""Samples after which the fit is made anew, beside those of shapes that have few."""
ENOUGH = 3
"""Samples a shape needs before its figure is its own: one accident among them moves it nowhere."""
FIT_WEIGHT = 2.0
"""Samples that the fit counts as beside a shape's own: few of them are a rough figure."""
OUTLIER = 2.5
"""A sample is taken for no more than so many times what the shape was thought to take: only slow ones are accidents."""


@dataclass(slots=True)
class Samples:
    """One shape's calls in this process, and (round, seconds) of those that count."""

    calls: int = 0
    kept: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    figure: float = 0.0

    def add(self, at: float, seconds: float) -> None:
        """Takes a warm sample."""
        self.kept.append((at, seconds))
        self.figure = lower_median([(s, 0.5 ** ((at - then) / HALF_LIFE)) for then, s in self.kept])

    @property
    def latest(self) -> float:
        """The round of the newest sample."""
        return self.kept[-1][0]


def lower_median(weighted: Sequence[tuple[float, float]]) -> float:
    """The least value that, with all below it, has at least half the weight."""
    half = sum(weight for _, weight in weighted) / 2
    reached = 0.0
    for value, weight in sorted(weighted):
        reached += weight
        if reached >= half - 1e-12:
            return value
    raise ValueError("a median of nothing")


class CostTable:
    """Seconds a round of one form of forwards."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, Samples] = {}
        self._rounds: dict[int, float] = {}
        self._fit = Fit({})
        self._until_refit = 0

    def see(self, rows: int, width: int, seconds: float | None) -> None:
        """Takes a round's seconds; None where they tell nothing of the shape."""
        now = self._rounds[rows] = self._rounds.get(rows, 0.0) + 1
        samples = self._shapes.setdefault((rows, width), Samples())
        samples.calls += 1
        if seconds is None or samples.calls <= COLD_CALLS or not (isfinite(seconds) and seconds > 0):
            return
        samples.add(now, self._within_reason((rows, width), seconds))
        self._until_refit -= 1
        if len(samples.kept) <= FULL_SAMPLES or self._until_refit < 0:
            self._refit()

    def seconds(self, rows: int, width: int) -> float:
        """What a round of the shape takes; 0 where no round of any shape was measured yet."""
        samples = self._shapes.get((rows, width))
        guess = self._fit.seconds((rows, width))
        if samples is None or len(samples.kept) < ENOUGH:
            return guess
        own = len(samples.kept) / (len(samples.kept) + FIT_WEIGHT)
        return own * samples.figure + (1 - own) * guess

    def known(self, rows: int, width: int) -> bool:
        """Whether the shape's figure is its own."""
        samples = self._shapes.get((rows, width))
        return samples is not None and len(samples.kept) >= ENOUGH

    def stale(self, rows: int, width: int) -> bool:
        """Whether the shape's figure is one of long ago."""
        samples = self._shapes.get((rows, width))
        now = self._rounds.get(rows, 0.0)
        return samples is not None and bool(samples.kept) and now - samples.latest > STALE

    def calls_to_know(self, rows: int, width: int) -> int:
        """Rounds until the shape's figure is its own. The first of them never tells: it is cold or not steady; of plain
        ones neither does the last, which was launched early and has nothing behind it.
        """
        samples = self._shapes.get((rows, width))
        return COLD_CALLS + ENOUGH + (width == 0) - (len(samples.kept) if samples else 0)

    def _within_reason(self, shape: Shape, seconds: float) -> float:
        usual = self.seconds(*shape)
        return min(seconds, usual * OUTLIER) if usual else seconds

    def _refit(self) -> None:
        measured = self._measured()
        sure = {shape: figure for shape, figure in measured.items() if figure[1] >= ENOUGH}
        self._fit, self._until_refit = Fit(sure or measured), REFIT

    def _measured(self) -> dict[Shape, tuple[float, int]]:
        return {
            shape: (samples.figure, len(samples.kept))
            for shape, samples in self._shapes.items()
            if samples.kept
        }

    def state(self) -> list[list[float]]:
        """[rows, width, seconds] of each shape that has a figure of its own."""
        measured = sorted(self._measured().items())
        return [[*shape, figure] for shape, (figure, count) in measured if count >= ENOUGH]

    def adopt(self, earlier: CostTable) -> None:
        """Takes the figures of shapes that have none of their own here."""
        for shape, samples in earlier._shapes.items():
            if not self.known(*shape):
                mine = self._shapes.setdefault(shape, Samples())
                mine.kept.extendleft(reversed(samples.kept))
                mine.figure = samples.figure
        self._refit()


def _read_figure(entry: object) -> tuple[int, int, float]:
    if not isinstance(entry, list) or len(entry) != 3:
        raise ValueError("no figure of a shape")
    rows, width, seconds = entry
    whole = type(rows) is int and type(width) is int and 0 < rows <= 4096 and 0 <= width <= 64
    if not whole or type(seconds) not in (int, float) or not 0 < seconds < 3600:
        raise ValueError("a shape's figure is out of reason")
    return rows, width, float(seconds)


def read_costs(state: Mapping[str, Any]) -> dict[str, CostTable]:
    """Tables by form. Raises ValueError."""
    if len(state) > 8 or not all(isinstance(form, str) for form in state):
        raise ValueError("no tables of figures")
    return {form: _read_table(figures) for form, figures in state.items()}


def _read_table(figures: object) -> CostTable:
    """Figures of an earlier process, as if they were long past."""
    if not isinstance(figures, list) or len(figures) > 4096:
        raise ValueError("no list of figures")
    table = CostTable()
    for entry in figures:
        rows, width, seconds = _read_figure(entry)
        samples = table._shapes.setdefault((rows, width), Samples())
        for _ in range(ENOUGH):
            samples.add(-HALF_LIFE * 1.6, seconds)
    return table
