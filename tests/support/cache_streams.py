"""Keys, values and queries of an endless text, and a layer's attention over one cache, as mlx-lm's classes do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mtplxd.platform.mlx import Array, mx

HEADS, DIM = 2, 4


class Stream:
    """Keys, values and queries of an endless text: a position has the same ones in every forward."""

    def __init__(self, seed: int = 0) -> None:
        numbers = np.random.default_rng(seed).normal(size=(3, 1, HEADS, 4096, DIM)).astype(np.float32)
        self._numbers = [mx.array(part) for part in numbers]

    def at(self, begin: int, count: int) -> list[Array]:
        return [part[..., begin : begin + count, :] for part in self._numbers]


def attend(cache: Any, parts: Sequence[Array]) -> Array:
    """A layer's attention over one cache, as mlx-lm's classes do it."""
    queries, keys, values = parts
    mask = cache.make_mask(queries.shape[2], return_array=False, window_size=getattr(cache, "max_size", None))
    keys, values = cache.update_and_fetch(keys, values)
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0, mask=mask)
