"""How sure a paired comparison is: the ratio of two speeds on the same prompts and its 95 % interval. Pure.

The ratio is the geometric mean of the prompts' ratios. The interval is the bootstrap's: prompts are drawn anew, always
by the same seed, and the percentiles are those that hold their promise for few prompts (Hesterberg's expanded ones: the
plain percentiles of eight values cover some 88 %, not 95).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import erf, exp, sqrt

import numpy as np
from numpy.typing import NDArray

DRAWS, SEED = 8000, 20260101
LEAST_PAIRS = 5
"""Below so many prompts an interval says nothing."""
_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Interval:
    """`ratio` with the ends of its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def above_one(self) -> bool:
        """Whether it is sure that the ratio is more than 1."""
        return self.low > 1.0


def compare(speeds: Mapping[int, float], others: Mapping[int, float]) -> Interval | None:
    """`speeds` against `others`, both by prompt; None where too few prompts have both."""
    pairs = [speeds[prompt] / others[prompt] for prompt in sorted(speeds) if others.get(prompt)]
    return None if len(pairs) < LEAST_PAIRS else _bootstrap(np.log(pairs))


def _bootstrap(logs: NDArray[np.float64]) -> Interval:
    draws = np.random.default_rng(SEED).integers(0, len(logs), (DRAWS, len(logs)))
    tail = _tail(len(logs))
    low, high = np.quantile(logs[draws].mean(axis=1), (tail, 1 - tail))
    return Interval(exp(float(logs.mean())), exp(float(low)), exp(float(high)))


def _tail(count: int) -> float:
    """The share of draws beyond each end: that of a normal law, made wider as Student's is for so few."""
    wide = sqrt(count / (count - 1)) * _student(count - 1)
    return 0.5 * (1 - erf(wide / sqrt(2)))


def _student(freedom: int) -> float:
    """Student's 97.5 % quantile by its expansion around the normal one; within 0.3 % from 4 degrees on."""
    z, n = _Z, float(freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
