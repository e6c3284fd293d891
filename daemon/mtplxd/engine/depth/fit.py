"""Seconds of a shape nobody has timed, from those that were: a + b · rows · (width + 1) + c · width, none negative.

The fit leans on a plain expectation while it has little to go by and bends towards neighbours that were timed. Of a
shape without samples it never says less than a narrower one of as many rows took, or more than a wider one.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log, log2
from operator import mul
from statistics import median

Shape = tuple[int, int]
"""(rows, drafts of the widest row)."""
Measured = Mapping[Shape, tuple[float, int]]
"""Seconds and number of samples by shape."""

EXPECTED = (0.95, 0.04, 0.06)
"""Shares of a plain round of one row: its fixed part, a verified position, a step of drafting."""
LEAN = 0.01
STEPS = 60
FULL_SAMPLES = 5
"""Samples from which a shape counts in full."""
NEIGHBOUR = 0.5
"""Weight of "as the fit says" beside neighbours."""


class Fit:
    """The terms of one table's figures, found once."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._terms = _solve(measured) if measured else [0.0, 0.0, 0.0]
        self._known: dict[Shape, float] = {}

    def seconds(self, shape: Shape) -> float:
        """What a round of the shape should take; 0 where nothing was measured."""
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = self._guess(shape) if self._measured else 0.0
        return found

    def _guess(self, shape: Shape) -> float:
        guess = self._predict(shape) * self._bend(shape)
        if shape in self._measured:
            return guess
        same = [
            (width, seconds) for (rows, width), (seconds, _) in self._measured.items() if rows == shape[0]
        ]
        above = min((seconds for width, seconds in same if width > shape[1]), default=guess)
        below = max((seconds for width, seconds in same if width < shape[1]), default=guess)
        return max(min(guess, above), below)

    def _predict(self, shape: Shape) -> float:
        return max(float(sum(map(mul, self._terms, _features(shape)))), 1e-12)

    def _bend(self, shape: Shape) -> float:
        """How the shapes nearest by differ from the fit, the nearest most."""
        total, bend = NEIGHBOUR, 0.0
        for (rows, width), (seconds, count) in self._measured.items():
            far = 4 * abs(log2(rows / shape[0])) + abs(width - shape[1])
            weight = 4 / (1 + far) ** 2 * count / (count + FULL_SAMPLES)
            total += weight
            bend += weight * log(seconds / self._predict((rows, width)))
        return exp(bend / total)


def _features(shape: Shape) -> tuple[float, float, float]:
    rows, width = shape
    return 1.0, float(rows * (width + 1)), float(width)


def _solve(measured: Measured) -> list[float]:
    """Least squares of relative errors, one term after the other until they settle, each kept at 0 or more."""
    shares = {shape: sum(map(mul, EXPECTED, _features(shape))) for shape in measured}
    scale = median(seconds / shares[shape] for shape, (seconds, _) in measured.items())
    terms = [scale * share for share in EXPECTED]
    aims = [LEAN / usual for usual in terms]
    pulls = [[LEAN / usual**2 if i == j else 0.0 for j in range(3)] for i, usual in enumerate(terms)]
    for shape, (seconds, count) in measured.items():
        weight = min(count, FULL_SAMPLES) / FULL_SAMPLES
        features = [feature / seconds for feature in _features(shape)]
        for i in range(3):
            aims[i] += weight * features[i]
            for j in range(3):
                pulls[i][j] += weight * features[i] * features[j]
    for _ in range(STEPS):
        for i in range(3):
            rest = sum(pulls[i][j] * terms[j] for j in range(3) if j != i)
            terms[i] = max(0.0, (aims[i] - rest) / pulls[i][i])
    return terms
