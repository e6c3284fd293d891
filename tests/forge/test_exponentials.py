"""Sums of exponentials and their gradients are what the equations say, however they are computed."""

from __future__ import annotations

import numpy as np
import pytest
from mtplxd.forge import exponentials
from mtplxd.platform.mlx import mx

ROWS = np.random.default_rng(5).standard_normal((3, 4, 50)).astype(np.float32) * 8
WEIGHTS = np.random.default_rng(6).standard_normal((3, 4, 1)).astype(np.float32)


@pytest.fixture(params=[True, False], ids=["numpy", "mlx"])
def anywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exponentials, "launches_compute", lambda: request.param)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_totals_and_gradients_are_those_of_the_equation(shift: float) -> None:
    def weighed(rows: object) -> object:
        return (mx.array(WEIGHTS) * exponentials.logsumexp(rows)).sum()

    rows = ROWS + np.float32(shift)
    value, gradient = mx.value_and_grad(weighed)(mx.array(rows))
    exact = rows.astype(np.float64)
    largest = exact.max(-1, keepdims=True)
    powers = np.exp(exact - largest)
    totals = np.log(powers.sum(-1, keepdims=True)) + largest
    np.testing.assert_allclose(
        value.item(), (WEIGHTS * totals).sum(), rtol=1e-6, atol=1e-2 if shift else 1e-5
    )
    shares = WEIGHTS * powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(np.array(gradient), shares, rtol=2e-3 if shift else 1e-5, atol=1e-7)


@pytest.mark.usefixtures("anywhere")
def test_a_gradient_goes_on_into_what_the_values_were_made_of() -> None:
    weights = np.random.default_rng(7).standard_normal((4, 50)).astype(np.float32)
    inputs = np.random.default_rng(8).standard_normal((6, 4)).astype(np.float32)
    found = mx.grad(lambda w: exponentials.logsumexp(mx.array(inputs) @ w).sum())(mx.array(weights))
    powers = np.exp((inputs @ weights).astype(np.float64))
    np.testing.assert_allclose(
        np.array(found), inputs.T @ (powers / powers.sum(-1, keepdims=True)), rtol=1e-4, atol=1e-6
    )
