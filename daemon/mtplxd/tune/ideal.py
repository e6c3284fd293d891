"""Times a round's forwards alone, on the caches an answer left behind: what a round would cost without the rest of it.

The rest is filters, draws, acceptance, text and bookkeeping. Runs on the engine thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from math import floor
from statistics import median

from mtplxd.engine.batch import Batch
from mtplxd.families.caches import RowCache
from mtplxd.platform.mlx import Array, mx

REPEATS = 10
"""Timed repetitions; one more before them is thrown away."""


def time_ideal_round(batch: Batch, depth: int, pairs: float, at: int, go_on: Callable[[], None]) -> float:
    """Milliseconds of a verify forward [1, depth + 1] with its logits and `depth` head forwards with theirs.

    Caches are rolled back to `at` positions where they can, and left at the answer's end where not. `pairs` is the mean
    number of pairs the first head forward takes; the repetitions take whole numbers around it. Target and head run in
    turn, as in a round, and each is awaited alone. `go_on` is called between repetitions and may raise.
    """
    alone = _Alone(batch, depth, at)
    spent = []
    for turn in range(REPEATS + 1):
        go_on()
        count = floor((turn + 1) * pairs) - floor(turn * pairs)
        spent.append(_time(alone.verify) + (_time(partial(alone.draft, count)) if depth else 0.0))
    return 1e3 * median(spent[1:])


class _Alone:
    """The forwards of a round over a batch of one row, without what is between them."""

    def __init__(self, batch: Batch, depth: int, at: int) -> None:
        self._batch, self._depth = batch, depth
        layers = [*batch.cache, *batch.head_cache]
        most = at if all(type(layer) is RowCache for layer in layers) else max(batch.cache[0].lengths)
        self._begin = [[min(most, length) for length in layer.lengths] for layer in layers]
        self._at = self._begin[0][0]
        known = batch.rows[0].tokens[self._at :][: depth + 1]
        self._tokens = known + [batch.rows[0].tokens[-1]] * (depth + 1 - len(known))
        self._roll_back()
        _, self._taps = batch.target.run(self._row(self._tokens), batch.cache)
        mx.eval(self._taps)
        self._roll_back()

    def verify(self) -> None:
        """One forward of the target, output matrix included."""
        target = self._batch.target
        hidden, taps = target.run(self._row(self._tokens), self._batch.cache)
        mx.eval(target.logits(hidden), taps)
        self._roll_back()

    def draft(self, pairs: int) -> None:
        """`depth` forwards of the head with their logits, the first over `pairs` pairs."""
        head, cache = self._batch.head, self._batch.head_cache
        assert head is not None
        pairs = min(max(pairs, 1), self._depth + 1)
        taps = tuple(tap[:, :pairs] for tap in self._taps)
        state = head.absorb(self._row(self._tokens[:pairs]), taps, cache)[:, -1:]
        logits = [head.logits(state)]
        for step in range(1, self._depth):
            state = head.extend(self._row(self._tokens[step : step + 1]), state, cache)
            logits.append(head.logits(state))
        mx.eval(logits)
        self._roll_back()

    def _roll_back(self) -> None:
        for layer, lengths in zip([*self._batch.cache, *self._batch.head_cache], self._begin, strict=True):
            layer.roll_back(lengths)

    def _row(self, tokens: list[int]) -> Array:
        return mx.array([tokens], mx.int32)


def _time(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
