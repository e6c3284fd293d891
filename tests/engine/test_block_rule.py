"""Block verification by its own equations: chances, running products, the last that passes, and never fewer drafts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.acceptance import (
    Laws,
    block_chances,
    count_before_failure,
    count_to_last_pass,
    residual_law,
    token_chances,
)
from mtplxd.engine.sampling import draw
from mtplxd.platform.mlx import mx
from support.laws import only, whole

cases = given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 5))


class Case:
    """Random laws p [k+1, V] and q [k, V], drafts of positive q, and how many of them count."""

    def __init__(self, seed: int, size: int, depth: int) -> None:
        rng = np.random.default_rng(seed)
        self.p, self.q = (self._laws(rng, count, size) for count in (depth + 1, depth))
        alike = rng.random(depth) < 0.3
        self.q[alike] = self.p[:-1][alike]
        self.drafts = np.array([rng.choice(size, p=law) for law in self.q])
        self.length = int(rng.integers(0, depth + 1))

    def _laws(self, rng: np.random.Generator, count: int, size: int) -> np.ndarray:
        weights = rng.random((count, size)) * rng.integers(0, 2, (count, size))
        weights[np.arange(count), rng.integers(0, size, count)] += 0.1
        return weights / weights.sum(axis=1, keepdims=True)

    @property
    def arrays(self) -> tuple[Laws, Any]:
        return self.of(mx.float64)

    def of(self, dtype: Any) -> tuple[Laws, Any]:
        p, q = mx.array(self.p, dtype)[None], mx.array(self.q, dtype)[None]
        return whole(p, q, mx.array(self.drafts, mx.int32)[None]), mx.array([self.length])


@settings(deadline=None, max_examples=150, derandomize=True, database=None)
@cases
def test_chances_and_products_are_those_of_the_algorithm(seed: int, size: int, depth: int) -> None:
    case = Case(seed, size, depth)
    found = block_chances(*case.arrays)
    r = 1.0
    for place in range(case.length):
        draft = case.drafts[place]
        r = min(r * case.p[place, draft] / case.q[place, draft], 1.0)
        assert found.weights[0, place + 1].item() == pytest.approx(r, abs=1e-14)
        if place + 1 == case.length:
            expected = r
        else:
            excess = np.maximum(r * case.p[place + 1] - case.q[place + 1], 0).sum()
            spare = excess + 1 - r
            if spare < 1e-12:
                continue  # the draft behind it always passes
            expected = excess / spare
        assert found.pass_with[0, place].item() == pytest.approx(expected, abs=1e-12)


@settings(deadline=None, max_examples=150, derandomize=True, database=None)
@cases
def test_on_average_no_fewer_drafts_pass_than_under_token(seed: int, size: int, depth: int) -> None:
    """A draft and all before it stay with chance r, never below the product of `token`'s chances."""
    laws, lengths = Case(seed, size, depth).arrays
    block, token = block_chances(laws, lengths), token_chances(laws)
    assert (np.array(block.weights)[0, 1:] >= np.cumprod(np.array(token.pass_with)[0]) - 1e-12).all()
    assert (np.array(block.pass_with) >= 0).all()
    assert (np.array(block.pass_with) <= 1 + 1e-12).all()


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(
    st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 4), st.floats(0, 1, exclude_max=True, width=32)
)
def test_any_p_and_q_give_numbers_and_a_token_that_p_allows(
    seed: int, size: int, depth: int, uniform: float
) -> None:
    case = Case(seed, size, depth)
    laws, lengths = case.of(mx.float32)
    chances, weights = block_chances(laws, lengths)
    accepted = count_to_last_pass(uniform < chances, lengths)
    left = residual_law(laws, weights, accepted, lengths)
    token = draw(only(left), mx.array([uniform], mx.float32)).item()
    assert np.isfinite(np.array(chances)).all()
    assert np.isfinite(np.array(left)).all()
    assert laws.p[0, accepted.item(), token].item() > 0


@settings(deadline=None, max_examples=50, derandomize=True, database=None)
@given(
    st.lists(
        st.tuples(st.lists(st.booleans(), min_size=4, max_size=4), st.integers(0, 4)), min_size=1, max_size=5
    )
)
def test_the_last_that_passes_counts_whatever_failed_before_it(rows: list[tuple[list[bool], int]]) -> None:
    passed, lengths = mx.array([row for row, _ in rows]), mx.array([length for _, length in rows])
    found = count_to_last_pass(passed, lengths).tolist()
    first = count_before_failure(passed, lengths).tolist()
    for (row, length), last, before in zip(rows, found, first, strict=True):
        assert last == max((place + 1 for place in range(length) if row[place]), default=0)
        assert last >= before


def test_one_draft_is_judged_as_token_judges_it() -> None:
    for seed in range(50):
        laws, _ = Case(seed, 5, 1).arrays
        block, token = block_chances(laws, mx.array([1])), token_chances(laws)
        assert np.allclose(np.array(block.pass_with), np.array(token.pass_with), rtol=0, atol=1e-15)


def test_a_weak_draft_is_carried_by_what_the_next_one_earns() -> None:
    """p = q at the second position and its draft: both stand or fall together, with the chance of the first."""
    p = mx.array([[[0.25, 0.75], [0.5, 0.5], [0.5, 0.5]]])
    q = mx.array([[[0.5, 0.5], [0.5, 0.5]]])
    found = block_chances(whole(p, q, [[0, 0]]), mx.array([2]))
    assert found.weights.tolist() == [[1.0, 0.5, 0.5]]
    assert found.pass_with.tolist() == [[0.0, 0.5]]


def test_where_both_laws_are_one_everything_passes() -> None:
    law = [0.5, 0.25, 0.25]
    p, q = mx.array([[law] * 4]), mx.array([[law] * 3])
    found = block_chances(whole(p, q, [[0, 2, 1]]), mx.array([3]))
    assert found.pass_with.tolist() == [[1.0, 1.0, 1.0]]


def test_the_residual_is_of_the_weighted_target() -> None:
    p, q = mx.array([[[0.5, 0.5], [0.25, 0.75]]]), mx.array([[[0.25, 0.75]]])
    left = residual_law(whole(p, q, [[0]]), mx.array([[0.8, 1.0]]), mx.array([0]), mx.array([1]))
    assert np.allclose(np.array(left), [[0.15, 0.0]], atol=1e-7)
