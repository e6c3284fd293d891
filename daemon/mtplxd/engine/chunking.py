"""How long the next prefill chunk may be to fit a time budget, from seconds that chunks took before. Runs nothing.

A chunk of L positions behind c others is taken to cost start + a·L + b·L·(c + L/2) seconds, none of the three below
zero: the third term is attention. They are fitted to the latest warm chunks, in proportion to what each took, without
those that took far longer than the rest; how far the very latest lie from the fit is load, and scales it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

SIZES = (16, 32, 64, 128, 192, 256, 320, 384, 448, 512)
"""What chunks are made of: parts of a block of 64, or whole ones."""
UNMEASURED = 64
"""Positions of a chunk that nothing is known of, or that lies behind far more than any measured one."""
KEPT, LATEST = 32, 5
FAR = 2.0
"""Chunks that took so many times what the fit says do not count; contexts so many times the longest are unknown."""
LOAD = (0.5, 8.0)
SUBSETS = (1,), (2,), (0,), (0, 1), (1, 2), (0, 2), (0, 1, 2)
"""Terms that a fit may have; of two that are as good the earlier one. Of chunks of one length it tells a rate."""

Terms = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Seen:
    """A chunk of `positions` behind `context` others."""

    positions: int
    context: int
    seconds: float

    @property
    def terms(self) -> Terms:
        """What each coefficient is multiplied with."""
        return _terms(self.positions, self.context)


@dataclass(slots=True)
class ChunkSizer:
    """Of one model. The first chunk of a length is cold and counts for nothing."""

    _seen: deque[Seen] = field(default_factory=lambda: deque(maxlen=KEPT))
    _tried: set[int] = field(default_factory=set)
    _longest: int = 0
    _farthest: int = 0
    _fit: Terms | None = None
    _load: float = 1.0

    def size(self, budget_s: float, context: int) -> int:
        """The longest chunk expected to take at most `budget_s` behind `context` positions; the shortest at least.

        No more than twice what was ever measured, so that a wrong guess costs little.
        """
        if self._fit is None:
            return UNMEASURED
        known = context <= FAR * self._farthest + SIZES[-1]
        most = max(UNMEASURED, 2 * self._longest) if known else UNMEASURED
        fitting = [size for size in SIZES if size <= most and self._expected(size, context) <= budget_s]
        return fitting[-1] if fitting else SIZES[0]

    def observe(self, positions: int, context: int, seconds: float) -> None:
        """Takes in that a chunk of `positions` behind `context` others took so many seconds."""
        if positions < 1 or seconds <= 0:
            return
        if positions not in self._tried:
            self._tried.add(positions)
            return
        self._longest = max(self._longest, positions)
        self._farthest = max(self._farthest, context + positions)
        self._seen.append(Seen(positions, context, seconds))
        self._fit = fitted(self._seen)
        ratios = [
            seen.seconds / max(_cost(self._fit, seen.terms), 1e-9) for seen in list(self._seen)[-LATEST:]
        ]
        self._load = min(max(median(ratios), LOAD[0]), LOAD[1])

    def expected(self, positions: int, context: int) -> float | None:
        """Seconds such a chunk should take, None while nothing was measured."""
        return None if self._fit is None else self._expected(positions, context)

    def _expected(self, positions: int, context: int) -> float:
        assert self._fit is not None
        return self._load * _cost(self._fit, _terms(positions, context))


def fitted(seen: Sequence[Seen]) -> Terms:
    """The coefficients that leave the least relative error, those of far slower chunks left out."""
    first = _least_squares(seen)
    usual = median(one.seconds / max(_cost(first, one.terms), 1e-9) for one in seen)
    near = [one for one in seen if one.seconds <= FAR * usual * _cost(first, one.terms)]
    return first if len(near) in (0, len(seen)) else _least_squares(near)


def _least_squares(seen: Sequence[Seen]) -> Terms:
    """Non-negative least squares over three terms: the best of the subsets whose own solution has no negative one."""
    rows = [_over(one.terms, one.seconds) for one in seen]
    best: tuple[float, Terms] | None = None
    for used in SUBSETS:
        found = _solve(rows, used)
        if found is None or min(found) < 0:
            continue
        whole = dict(zip(used, found, strict=True))
        fit = whole.get(0, 0.0), whole.get(1, 0.0), whole.get(2, 0.0)
        error = sum((_cost(fit, row) - 1) ** 2 for row in rows)
        if best is None or error < best[0] - 1e-6:
            best = error, fit
    assert best is not None  # one positive term fits any positive seconds
    return best[1]


def _solve(rows: Sequence[Terms], used: Sequence[int]) -> list[float] | None:
    """Coefficients of the used terms that bring every row nearest to 1; None where the rows do not tell."""
    scale = [max(row[i] for row in rows) for i in used]
    scaled = [[row[i] / unit for i, unit in zip(used, scale, strict=True)] for row in rows]
    size = len(used)
    left = [[sum(row[i] * row[j] for row in scaled) for j in range(size)] for i in range(size)]
    right = [sum(row[i] for row in scaled) for i in range(size)]
    for i in range(size):
        if left[i][i] <= 1e-6 * len(rows):
            return None
        for k in range(i + 1, size):
            factor = left[k][i] / left[i][i]
            right[k] -= factor * right[i]
            left[k] = [a - factor * b for a, b in zip(left[k], left[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(left[i][j] * found[j] for j in range(i + 1, size))
        found[i] = (right[i] - rest) / left[i][i]
    return [value / unit for value, unit in zip(found, scale, strict=True)]


def _terms(positions: int, context: int) -> Terms:
    return 1.0, float(positions), positions * (context + positions / 2)


def _over(terms: Terms, seconds: float) -> Terms:
    start, positions, pairs = terms
    return start / seconds, positions / seconds, pairs / seconds


def _cost(fit: Terms, terms: Terms) -> float:
    return sum(coefficient * term for coefficient, term in zip(fit, terms, strict=True))
