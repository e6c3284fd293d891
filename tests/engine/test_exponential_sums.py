"""Sums of exponentials by arithmetic equal numpy's in float64, on any vocabulary and for any spread."""

from __future__ import annotations

import numpy as np
import pytest
from mtplxd.engine.exponential import LARGE, exponentials, sum_exponentials
from mtplxd.platform.mlx import mx


@pytest.mark.parametrize("size", [7, LARGE - 1, LARGE, 49_152])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0, 100.0])
def test_a_sum_is_numpys(size: int, spread: float) -> None:
    rng = np.random.default_rng(size)
    values = (rng.normal(size=(2, 3, size)) * spread).astype(np.float32)
    largest = values.max(axis=-1, keepdims=True)
    found = sum_exponentials(mx.array(values), mx.array(largest))
    wanted = np.exp(values.astype(np.float64) - largest).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(np.array(found), wanted, rtol=2e-5)  # as MLX's own sum of as many numbers


def test_what_is_excluded_adds_nothing() -> None:
    values = np.full((1, 49_152), -np.inf, np.float32)
    values[0, :3] = [2.0, 1.0, 2.0]
    found = sum_exponentials(mx.array(values), mx.array([[2.0]], mx.float32))
    assert found.item() == pytest.approx(2.0 + np.exp(-1.0), rel=1e-6)
    weights = exponentials(mx.array(values), mx.array([[2.0]], mx.float32), 0.7)
    assert np.flatnonzero(np.array(weights)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [mx.float64, mx.float16])
def test_other_dtypes_take_mlxs_own(dtype: object) -> None:
    drawn = np.random.default_rng(1).normal(size=(1, LARGE))
    with mx.stream(mx.cpu):
        values = mx.array(drawn, dtype)
        largest = mx.max(values, axis=-1, keepdims=True)
        found = sum_exponentials(values, largest)
        assert found.dtype == dtype
        assert found.item() == mx.sum(mx.exp(values - largest)).item()
