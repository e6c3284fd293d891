"""Whether tokens follow the laws they should have been drawn from: a number a token, one test of all. Imports no MLX.

A token x of a position whose law is p becomes u = F(x) + v·p(x): F(x) is the mass of the ids before x in order of
falling mass (equal ones by ascending id), v is uniform. If each token was drawn from its law given the text before it,
the u are independent and uniform on [0, 1), however different the laws are (Rosenblatt 1952, randomised for discrete
laws). A law that is too flat or too sharp, or one of another model, moves them outwards or inwards everywhere alike.
What averages out over all texts is not seen; how much a stated fault is seen is the test's power.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtplxd.packs.findings import LEAST_P
from mtplxd.tune.verification import LawTest
from mtplxd.tune.verify_chain import Floats, Ranked, bound_law, rank_law

CELLS = 16
HOTTER = 1.15
ALTERNATIVE = "a temperature 15 % too high"
TRIALS = 2000
_SEED = 20240615
TEST = f"chi-square of {CELLS} cells of the randomised probability integral transform"


@dataclass(frozen=True, slots=True)
class Marks:
    """Of n tokens: their u [n], and the chance [n, CELLS] a decoder as `ALTERNATIVE` says has of each cell.

    `excluded` counts tokens that their filters exclude by more than rounding explains.
    """

    values: Floats
    wrong: Floats
    excluded: int


def mark_tokens(
    logits: Floats,
    tokens: Sequence[int],
    temperature: float,
    top_p: float,
    slack: float,
    rng: np.random.Generator,
) -> Marks:
    """Marks n tokens by the plain laws of raw logits [n, V], any gap of which may be off by `slack`."""
    values, wrong, excluded = np.empty(len(tokens)), np.empty((len(tokens), CELLS)), 0
    for place, token in enumerate(tokens):
        law = rank_law(logits[place], temperature, top_p)
        values[place], mass = _transform(law, token, rng.random())
        if mass == 0.0:
            excluded += not bound_law(logits[place], temperature, top_p, slack).may[token]
        wrong[place] = _cells_of(law, rank_law(logits[place], temperature * HOTTER, top_p, law.ids))
    return Marks(values, wrong, excluded)


def judge_laws(marks: Sequence[Marks], trials: int = TRIALS) -> LawTest:
    """The test over all tokens, and its power by drawing `trials` wrong decoders' tokens; the same every time."""
    values = np.concatenate([part.values for part in marks])
    counts = np.bincount(np.minimum((values * CELLS).astype(np.int64), CELLS - 1), minlength=CELLS)
    statistic = chi_square(counts)
    return LawTest(
        test=TEST,
        tokens=len(values),
        statistic=statistic,
        p_value=chi_square_tail(statistic, CELLS - 1),
        power=estimate_power(np.concatenate([part.wrong for part in marks]), trials),
        alternative=ALTERNATIVE,
        excluded=sum(part.excluded for part in marks),
    )


def chi_square(counts: Floats) -> float:
    """Pearson's statistic of counts [cells] against equal ones."""
    return float(_statistics(counts[None])[0])


def chi_square_tail(statistic: float, freedom: int) -> float:
    """P(χ² ≥ statistic) with so many degrees of freedom."""
    return upper_gamma(freedom / 2, statistic / 2)


def upper_gamma(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function Q(a, x), a > 0, to about 1e-14 relative.

    Below a + 1 by the series of P = 1 − Q, above by the continued fraction (modified Lentz), where each converges fast.
    """
    if x <= 0.0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    return 1.0 - scale * _series(a, x) if x < a + 1.0 else scale * _fraction(a, x)


def estimate_power(wrong: Floats, trials: int) -> float:
    """The share of `trials` sets of n tokens, each drawn with its own chances [n, CELLS], that the test fails."""
    rng = np.random.default_rng(_SEED)
    counts = np.zeros((trials, CELLS), np.int64)
    rows = np.arange(trials)
    for chances in np.cumsum(wrong, axis=1):
        cells = np.searchsorted(chances, rng.random(trials) * chances[-1], side="right")
        counts[rows, np.minimum(cells, CELLS - 1)] += 1
    return float(np.mean(_statistics(counts) > _critical()))


def _transform(law: Ranked, token: int, uniform: float) -> tuple[float, float]:
    """u of a token and its mass. One without any gets the end of the scale."""
    place = int(np.flatnonzero(law.ids == token)[0])
    mass = float(law.masses[place])
    return min(float(law.masses[:place].sum()) + uniform * mass, 1.0), mass


def _cells_of(law: Ranked, other: Ranked) -> Floats:
    """The chance [CELLS] of each cell for tokens drawn from `other` and marked by `law`, exactly.

    Inside one id's part of the scale u is uniform: the sums of `other` are linear in those of `law` there. What `other`
    draws and `law` excludes ends in the last cell.
    """
    kept = law.masses > 0
    own = np.concatenate([[0.0], np.cumsum(law.masses[kept])])
    theirs = np.concatenate([[0.0], np.cumsum(other.masses[kept])])
    reached = np.interp(np.arange(1, CELLS) / CELLS, own, theirs)
    return np.asarray(np.diff(np.concatenate([[0.0], reached, [1.0]])))


def _statistics(counts: Floats) -> Floats:
    expected = counts.sum(axis=1, keepdims=True) / counts.shape[1]
    return np.asarray(((counts - expected) ** 2 / expected).sum(axis=1))


def _critical() -> float:
    """The statistic whose p-value is LEAST_P, by bisection."""
    low, high = 0.0, 1000.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if chi_square_tail(middle, CELLS - 1) > LEAST_P else (low, middle)
    return high


def _series(a: float, x: float) -> float:
    """Σ xⁿ Γ(a) / Γ(a + 1 + n)."""
    term = total = 1.0 / a
    for n in range(1, 10_000):
        term *= x / (a + n)
        total += term
        if term < total * 1e-16:
            break
    return total


def _fraction(a: float, x: float) -> float:
    """1 / (x + 1 − a − 1·(1 − a) / (x + 3 − a − 2·(2 − a) / (x + 5 − a − …)))."""
    tiny = 1e-300
    b = x + 1.0 - a
    c, d = 1.0 / tiny, 1.0 / (b or tiny)
    found = d
    for n in range(1, 10_000):
        step = -n * (n - a)
        b += 2.0
        d = 1.0 / ((step * d + b) or tiny)
        c = (b + step / c) or tiny
        found *= d * c
        if abs(d * c - 1.0) < 1e-16:
            break
    return found
