"""Rows of keys and values behave as mlx-lm's own cache for one row, and as single rows when they share a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import KVCache
from mtplxd.families.caches.row import RowCache
from mtplxd.families.caches.slots import STEP
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import mx

SHAPE = (1, 2, 1, 4)


def slots(rng: np.random.Generator, rows: int, count: int) -> Any:
    return mx.array(rng.normal(size=(rows, 2, count, 4)).astype(np.float32))


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(1, 150), st.integers(0, 20)), min_size=1, max_size=8))
def test_one_row_equals_mlx_lms_cache_after_any_writes_and_rollbacks(steps: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = RowCache(1), KVCache()
    for count, back in steps:
        assert same_mask(ours.make_mask(count), theirs.make_mask(count, return_array=False, window_size=None))
        keys, values = slots(rng, 1, count), slots(rng, 1, count)
        for held, true in zip(
            ours.update_and_fetch(keys, values), theirs.update_and_fetch(keys, values), strict=True
        ):
            assert np.array_equal(np.array(held), np.array(true))
        assert ours.offset == theirs.offset
        back = min(back, ours.lengths[0])
        ours.roll_back([ours.lengths[0] - back])
        theirs.trim(back)
        assert ours.offset == theirs.offset


def same_mask(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, mx.array) and isinstance(theirs, mx.array):
        return bool(np.array_equal(np.array(ours), np.array(theirs)))
    return bool(ours is theirs or ours == theirs)


@pytest.mark.parametrize("before", [0, 3, 10])
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("window", [None, 4, 100])
def test_the_mask_of_one_row_lets_each_position_see_its_past_inside_the_window(
    before: int, count: int, window: int | None
) -> None:
    cache = RowCache(1)
    if before:
        cache.update_and_fetch(
            slots(np.random.default_rng(0), 1, before), slots(np.random.default_rng(1), 1, before)
        )
    mask = cache.make_mask(count, return_array=True, window_size=window)
    if count == 1 and window is None:
        assert mask is None
    else:
        assert np.array_equal(np.array(mask), visible(before, count, before + count, window))


@pytest.mark.parametrize("window", [None, 3])
def test_masks_of_ragged_rows_follow_each_rows_length(window: int | None) -> None:
    cache = RowCache(3)
    rng = np.random.default_rng(0)
    cache.update_and_fetch(slots(rng, 3, 6), slots(rng, 3, 6))
    cache.roll_back([6, 0, 2])
    mask = np.array(cache.make_mask(2, window_size=window))
    assert mask.shape == (3, 1, 2, 8)
    for b, length in enumerate([6, 0, 2]):
        assert np.array_equal(mask[b, 0], visible(length, 2, 8, window))


def visible(before: int, count: int, total: int, window: int | None) -> np.ndarray:
    """Position `before + i` sees itself and what came before it, the last `window` of them."""
    table = np.zeros((count, total), bool)
    for i in range(count):
        own = before + i
        table[i, 0 if window is None else max(0, own - window + 1) : own + 1] = True
    return table


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.integers(1, 90), st.lists(st.integers(0, 9), min_size=3, max_size=3)), max_size=8)
)
def test_ragged_rows_hold_what_they_would_hold_alone(steps: list[tuple[int, list[int]]]) -> None:
    rng = np.random.default_rng(0)
    together, alone = RowCache(3), [RowCache(1) for _ in range(3)]
    for count, back in steps:
        keys, values = slots(rng, 3, count), slots(rng, 3, count)
        together.update_and_fetch(keys, values)
        for b, cache in enumerate(alone):
            cache.update_and_fetch(keys[b : b + 1], values[b : b + 1])
        lengths = [max(length - some, 0) for length, some in zip(together.lengths, back, strict=True)]
        together.roll_back(lengths)
        for cache, length in zip(alone, lengths, strict=True):
            cache.roll_back([length])
        for b, cache in enumerate(alone):
            assert cache.lengths == [together.lengths[b]]
            for held, true in ((together.keys, cache.keys), (together.values, cache.values)):
                assert np.array_equal(np.array(held[b, :, : lengths[b]]), np.array(true[0, :, : lengths[b]]))


@pytest.mark.parametrize("held", [STEP - 1, STEP, STEP + 1])
@pytest.mark.parametrize("count", [1, 2, STEP])
@pytest.mark.parametrize("rows", [1, 2])
def test_capacity_grows_by_whole_steps_and_loses_nothing(held: int, count: int, rows: int) -> None:
    rng = np.random.default_rng(0)
    cache = RowCache(rows)
    first, second = slots(rng, rows, held), slots(rng, rows, count)
    cache.update_and_fetch(first, first)
    keys, values = cache.update_and_fetch(second, second)
    expected = np.concatenate([np.array(first), np.array(second)], axis=2)
    assert np.array_equal(np.array(keys), expected)
    assert np.array_equal(np.array(values), expected)
    assert cache.keys.shape[2] == -(-(held + count) // STEP) * STEP
    assert cache.nbytes == cache.keys.nbytes + cache.values.nbytes


@pytest.mark.parametrize("lengths", [[4], [-1]])
def test_rolling_forward_or_below_nothing_is_refused(lengths: list[int]) -> None:
    cache = RowCache(1)
    rng = np.random.default_rng(0)
    cache.update_and_fetch(slots(rng, 1, 3), slots(rng, 1, 3))
    with pytest.raises(ValueError, match="cannot roll"):
        cache.roll_back(lengths)
    assert cache.lengths == [3]


def test_a_body_gives_the_same_logits_with_our_cache_as_with_mlx_lms(tiny_model: LoadedModel) -> None:
    body = tiny_model.target
    tokens = mx.array([[5, 9, 11, 200, 31, 4, 8]])
    ours, theirs = body.make_cache(1), [KVCache() for _ in range(body.layers)]  # type: ignore[attr-defined]
    for part in (tokens[:, :4], tokens[:, 4:6], tokens[:, 6:]):
        mine, stock = (body.logits(body.run(part, cache)[0]) for cache in (ours, theirs))  # type: ignore[arg-type]
        assert np.array_equal(np.array(mine), np.array(stock))


def test_ragged_rows_get_the_logits_they_get_alone(tiny_model: LoadedModel) -> None:
    body = tiny_model.target
    prompts = [[7, 8], [5, 9, 11, 200, 31, 4, 8], [12, 3, 77, 150]]
    width = max(map(len, prompts))
    cache = body.make_cache(3)
    body.run(mx.array([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts]), cache)
    for layer in cache:
        layer.roll_back([len(prompt) for prompt in prompts])
    following = [[60, 61, 62], [63, 64, 65], [66, 67, 68]]
    together = np.array(body.logits(body.run(mx.array(following), cache)[0]))
    for b, prompt in enumerate(prompts):
        alone = np.array(body.logits(body.run(mx.array([[*prompt, *following[b]]]), body.make_cache(1))[0]))
        assert np.abs(together[b] - alone[0, -3:]).max() <= 2e-5
