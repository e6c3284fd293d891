"""A fixed window: what a forward of one width attends over depends on its block alone; stale slots are hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.families.caches.row import RowCache
from mtplxd.families.caches.slots import STEP
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import mx

BLOCK, WIDTH = 16, 4


def slots(value: float, count: int) -> Any:
    return mx.full((1, 2, count, 4), value, mx.float32)


def windowed(held: int, block: int = BLOCK, width: int = WIDTH) -> RowCache:
    cache = RowCache()
    cache.fix_window(block, width)
    for place in range(held):
        cache.update_and_fetch(slots(place + 1, 1), slots(-place - 1, 1))
    return cache


@pytest.mark.parametrize("held", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1, 3 * BLOCK])
def test_a_forward_of_the_width_sees_to_the_end_of_its_block_and_its_own_width_beyond(held: int) -> None:
    cache = windowed(held)
    end = (held // BLOCK + 1) * BLOCK + WIDTH
    mask = np.array(cache.make_mask(WIDTH))
    keys, values = cache.update_and_fetch(slots(500, WIDTH), slots(-500, WIDTH))
    assert keys.shape[2] == values.shape[2] == mask.shape[1] == end
    assert np.array_equal(mask, np.arange(end) <= held + np.arange(WIDTH)[:, None])
    assert np.array(keys)[0, 0, : held + WIDTH, 0].tolist() == [*range(1, held + 1), *[500] * WIDTH]


def test_the_shape_is_one_for_all_places_of_a_block() -> None:
    shapes = {windowed(held).make_mask(WIDTH).shape for held in range(BLOCK, 2 * BLOCK)}
    assert shapes == {(WIDTH, 2 * BLOCK + WIDTH)}


@pytest.mark.parametrize("count", [1, 2, WIDTH - 1, WIDTH + 1, 3 * BLOCK])
def test_forwards_of_other_widths_are_as_without_a_window(count: int) -> None:
    fixed, free = windowed(5), RowCache()
    free.update_and_fetch(slots(1, 5), slots(1, 5))
    assert fixed.make_mask(count) == free.make_mask(count) == ("causal" if count > 1 else None)
    keys, _ = fixed.update_and_fetch(slots(7, count), slots(7, count))
    assert keys.shape[2] == 5 + count
    assert fixed.keys.shape[2] % STEP == 0


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(st.integers(0, 40), st.lists(st.tuples(st.integers(1, WIDTH), st.booleans()), max_size=12))
def test_any_rounds_leave_the_kept_positions_and_nothing_else_in_sight(
    held: int, rounds: list[tuple[int, bool]]
) -> None:
    cache, expected = windowed(held), [*range(1, held + 1)]
    for turn, (kept, stale) in enumerate(rounds):
        if stale:  # whatever lies behind the length is never seen
            behind = mx.arange(cache.keys.shape[2]) >= cache.lengths[0] if cache.keys is not None else None
            if behind is not None:
                cache.keys = mx.where(behind[None, None, :, None], mx.nan, cache.keys)
        mask = np.array(cache.make_mask(WIDTH))
        keys, _ = cache.update_and_fetch(slots(1000 + turn, WIDTH), slots(0, WIDTH))
        seen = np.array(keys)[0, 0, :, 0]
        for place in range(WIDTH):
            assert seen[mask[place]].tolist() == [*expected, *[1000 + turn] * (place + 1)]
        cache.roll_back([cache.lengths[0] - WIDTH + kept])
        expected += [1000 + turn] * kept


def test_capacity_holds_the_window_before_the_text_fills_it() -> None:
    cache = windowed(STEP - 2, block=STEP, width=WIDTH)
    cache.update_and_fetch(slots(1, WIDTH), slots(1, WIDTH))
    assert cache.keys.shape[2] == 2 * STEP
    cache.roll_back([STEP])
    cache.update_and_fetch(slots(1, WIDTH), slots(1, WIDTH))
    assert cache.keys.shape[2] >= 2 * STEP + WIDTH


def test_a_sliding_window_inside_the_fixed_one_hides_the_far_past() -> None:
    cache = windowed(20)
    mask = np.array(cache.make_mask(WIDTH, window_size=6))
    own = 20 + np.arange(WIDTH)[:, None]
    places = np.arange(2 * BLOCK + WIDTH)
    assert np.array_equal(mask, (places <= own) & (places > own - 6))


def test_a_bodys_logits_through_the_window_are_those_without_it(tiny_model: LoadedModel) -> None:
    body = tiny_model.target
    tokens = [(place * 7) % 290 + 3 for place in range(30)]
    found = []
    for fixed in (False, True):
        cache = body.make_cache(1)
        body.run(mx.array([tokens[:20]]), cache)
        for layer in cache:
            if fixed:
                layer.fix_window(BLOCK, WIDTH)
        found.append(np.array(body.logits(body.run(mx.array([tokens[20:24]]), cache)[0])))
    assert np.abs(found[0] - found[1]).max() <= 2e-5
