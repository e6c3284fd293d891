"""Accurate exponentials for proofs in float64. MLX computes `exp` of a float64 to about 1e-6 only (its CPU kernel is
made for float32), which would drown a comparison at 1e-9. Everything else of MLX passes through unchanged."""

from __future__ import annotations

import math
from typing import Any

import pytest
from mtplxd.engine import exponential, sampling
from mtplxd.platform.mlx import Array, mx


class ExactMx:
    """Stands in for `mx` where float64 laws are computed: exp and softmax by `pow`, good to 1e-15."""

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)

    def exp(self, x: Array) -> Array:
        return mx.power(mx.array(math.e, x.dtype), x) if x.dtype == mx.float64 else mx.exp(x)

    def softmax(self, x: Array, axis: int, precise: bool) -> Array:
        if x.dtype != mx.float64:
            return mx.softmax(x, axis=axis, precise=precise)
        weights = self.exp(x - mx.max(x, axis=axis, keepdims=True))
        return weights / mx.sum(weights, axis=axis, keepdims=True)


def use_exact_exponentials(patch: pytest.MonkeyPatch) -> None:
    """For the rest of a test, the filter chain's own exponentials of float64 numbers are accurate."""
    for module in (sampling, exponential):
        patch.setattr(module, "mx", ExactMx())
