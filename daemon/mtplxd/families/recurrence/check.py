"""Compares a wrapped recurrent layer with mlx-lm's own on a few positions, at load. Decides nothing."""

from __future__ import annotations

import inspect
from typing import Any

from mtplxd.families.caches.state import Slots, StateCache
from mtplxd.families.recurrence.replays import Tape
from mtplxd.platform.mlx import Array, mx, tree

HISTORY, STRETCH = 5, 4
TOLERANCES = {mx.float32: 1e-4, mx.float16: 2e-2, mx.bfloat16: 5e-2}
"""Largest difference by dtype, as a share of the largest number: products of other shapes round otherwise."""


def check_layer(layer: Any, stock: type, size: int, width: int, *, by_tape: bool) -> bool:
    """Whether `layer`, of a class derived from `stock`, computes what `stock` does and goes back to where it would be.

    `size` is how many arrays it keeps, `width` that of its input; `by_tape` says what it should go back by. Runs two
    dozen positions.
    """
    dtype = _dtype(layer)
    inputs = mx.random.normal((1, HISTORY + STRETCH, width), key=mx.random.key(0)).astype(dtype)
    near = _Nearness(TOLERANCES[dtype])
    cache = StateCache(1, size)
    parts = mx.split(inputs, [HISTORY], axis=1)
    outputs = [layer(part, **_named(stock, cache)) for part in parts]
    plain, _ = _run_stock(layer, stock, parts, size)
    sound = isinstance(cache.replay, Tape) == by_tape and near.all(outputs, plain)
    for kept in (STRETCH, STRETCH - 1, 1, 0):
        cache.roll_back([HISTORY + kept])
        committed = [parts[0], parts[1][:, :kept]] if kept else parts[:1]
        sound = sound and near.all(cache.slots, _run_stock(layer, stock, committed, size)[1])
    return sound


class _Nearness:
    def __init__(self, share: float) -> None:
        self._share = share

    def all(self, found: Slots, expected: Slots) -> bool:
        """Whether each array is as near to its counterpart as rounding allows."""
        return all(self._near(*pair) for pair in zip(found, expected, strict=True))

    def _near(self, found: Array, expected: Array) -> bool:
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return False
        wrong = mx.max(mx.abs(found - expected)).astype(mx.float32)
        return bool((wrong <= self._share * mx.max(mx.abs(expected)).astype(mx.float32)).item())


def _run_stock(layer: Any, stock: type, parts: list[Array], size: int) -> tuple[list[Array], Slots]:
    from mlx_lm.models.cache import ArraysCache

    cache = ArraysCache(size)
    outputs = [stock.__call__(layer, part, **_named(stock, cache)) for part in parts]
    return outputs, cache.cache


def _named(kind: type, cache: Any) -> dict[str, Any]:
    """The cache, and no mask where a mask is asked for."""
    asked = inspect.signature(kind.__call__).parameters
    return {"cache": cache} | ({"mask": None} if "mask" in asked else {})


def _dtype(layer: Any) -> Any:
    """The dtype it computes in: that of its widest floating parameter, its norms and decays being wider at times."""
    floats = [a for _, a in tree.tree_flatten(layer.parameters()) if a.dtype in TOLERANCES]
    return max(floats, key=lambda array: array.size).dtype
