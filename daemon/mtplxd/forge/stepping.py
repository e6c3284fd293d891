"""Steps a target of `families` in lockstep and reads off what training needs, once."""

from __future__ import annotations

import numpy as np

from mtplxd.families.protocols import Target
from mtplxd.forge.losses import SOFT
from mtplxd.forge.rollout import Ints, Step
from mtplxd.forge.shards import TOP
from mtplxd.platform.mlx import mx


class TargetStepper:
    """Rows of a target that advance one token at a time. `top` is how many of the largest logits are kept."""

    def __init__(self, target: Target, rows: int, top: int = TOP) -> None:
        self.rows = rows
        self._target, self._top = target, min(top, target.vocab_size)
        self._cache = target.make_cache(rows)

    def reset(self) -> None:
        """Forgets all rows; the caches keep their room."""
        for cache in self._cache:
            cache.roll_back([0] * self.rows)

    def step(self, tokens: Ints) -> Step:
        """Appends one token to every row [B]."""
        hidden, taps = self._target.run(mx.array(tokens)[:, None], self._cache)
        logits = self._target.logits(hidden)[:, 0].astype(mx.float32)
        sums = mx.stack([mx.logsumexp(logits, axis=-1), mx.logsumexp(logits / SOFT, axis=-1)], axis=-1)
        ids = mx.argpartition(-logits, self._top - 1, axis=-1)[:, : self._top]
        largest = mx.take_along_axis(logits, ids, axis=-1)
        joined = mx.stack([tap[:, 0] for tap in taps], axis=1).astype(mx.float16)
        mx.eval(joined, ids, largest, sums, [cache.state for cache in self._cache])
        found, values = np.array(ids).astype(np.int32), np.array(largest)
        order = np.lexsort((found, -values), axis=-1)
        return Step(
            taps=np.array(joined),
            top_ids=np.take_along_axis(found, order, axis=1),
            top_logits=np.take_along_axis(values, order, axis=1),
            logsumexp=np.array(sums),
        )
