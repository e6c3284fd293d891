"""Keys, values and queries of an endless text, a layer's attention over one cache as mlx-lm's classes do it, and what
arrays take in all."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
from mtplxd.platform.mlx import Array, mx

HEADS, DIM = 2, 4
ROUNDED = 16384
"""Bytes by which what is allocated may be more than what is held."""


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


def resting() -> int:
    """Bytes of all arrays that somebody holds."""
    gc.collect()
    mx.synchronize()
    mx.clear_cache()
    return int(mx.get_active_memory())
