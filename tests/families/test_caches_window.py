"""A window's cache keeps what a window needs and a stretch behind it, never the whole text, and says when that ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mlx_lm.models.cache import RotatingKVCache
from mtplxd.families.caches import WindowCache
from mtplxd.families.caches.slots import STEP
from mtplxd.families.caches.window import SLACK
from mtplxd.platform.mlx import mx
from support.cache_streams import Stream, attend

WINDOW = 8


def filled(held: int, window: int = WINDOW, chunk: int = 1) -> tuple[WindowCache, Stream]:
    cache, stream = WindowCache(1, window), Stream()
    for begin in range(0, held, chunk):
        attend(cache, stream.at(begin, min(chunk, held - begin)))
    return cache, stream


@pytest.mark.parametrize("chunk", [1, 5, 512])
def test_memory_follows_the_window_not_the_text(chunk: int) -> None:
    cache, _ = filled(3000, chunk=chunk)
    assert cache.keys.shape[2] <= WINDOW + SLACK + chunk + 2 * STEP
    assert cache.lengths == [3000]


def test_memory_does_not_grow_by_rounds_that_are_rolled_back() -> None:
    cache, stream = filled(700)
    before = cache.nbytes
    for _ in range(400):
        attend(cache, stream.at(700, 4))
        cache.roll_back([700])
    assert cache.nbytes <= before + cache.nbytes // cache.keys.shape[2] * STEP
    cache.roll_back([0])
    attend(cache, stream.at(0, 4))
    assert cache.nbytes <= before + cache.nbytes // cache.keys.shape[2] * STEP


@pytest.mark.parametrize("held", [10, 263, 264, 265, 600, 1500])
def test_any_place_within_the_slack_can_be_gone_back_to(held: int) -> None:
    for back in (1, 17, 255, 256):
        if back > held:
            continue
        cache, stream = filled(held, chunk=3)
        cache.roll_back([held - back])
        fresh = RotatingKVCache(WINDOW)
        if held - back:
            attend(fresh, stream.at(0, held - back))
        found, expected = (np.array(attend(one, stream.at(held - back, 2))) for one in (cache, fresh))
        assert np.abs(found - expected).max() <= 1e-6


def test_further_back_is_refused_and_changes_nothing() -> None:
    cache, _ = filled(1500)
    kept_from = cache.begins[0]
    assert kept_from > 0
    with pytest.raises(ValueError, match="kept from"):
        cache.roll_back([kept_from + WINDOW - 2])
    assert cache.lengths == [1500]
    cache.roll_back([kept_from + WINDOW - 1])
    assert cache.lengths == [kept_from + WINDOW - 1]


def test_the_begin_can_be_gone_back_to_from_anywhere() -> None:
    cache, stream = filled(1500)
    cache.roll_back([0])
    assert cache.begins == [0]
    found = np.array(attend(cache, stream.at(0, 12)))
    assert np.abs(found - np.array(attend(RotatingKVCache(WINDOW), stream.at(0, 12)))).max() <= 1e-6


@pytest.mark.parametrize("held", [0, 3, WINDOW, 40])
def test_it_shows_its_newest_positions_in_order(held: int) -> None:
    cache, stream = filled(held + 4)
    cache.roll_back([held])
    if held:
        keys, values = cache.held(WINDOW)
        _, true_keys, true_values = stream.at(max(0, held - WINDOW), min(held, WINDOW))
        assert mx.array_equal(keys, true_keys)
        assert mx.array_equal(values, true_values)
    with pytest.raises(ValueError, match="not kept"):
        filled(3000)[0].held(2000)


def test_a_window_narrower_than_the_caches_hides_what_is_beyond_it() -> None:
    cache, _ = filled(20)
    mask = np.array(cache.make_mask(3, window_size=5))
    own, places = 7 + np.arange(3)[:, None], np.arange(10)
    assert np.array_equal(mask, (places <= own) & (places > own - 5))


BLOCK, WIDTH = 16, 4


def fixed(held: int, window: int = WINDOW) -> tuple[WindowCache, Stream]:
    cache, stream = filled(held, window, chunk=7)
    cache.fix_window(BLOCK, WIDTH)
    return cache, stream


@pytest.mark.parametrize("block", [0, 1, 4, 40])
def test_what_a_fixed_forward_sees_depends_on_its_block_alone(block: int) -> None:
    shapes, first_seen = set(), set()
    for held in range(max(block * BLOCK, 1), (block + 1) * BLOCK):
        cache, stream = fixed(held)
        mask = cache.make_mask(WIDTH)
        _, keys, values = stream.at(held, WIDTH)
        seen, _ = cache.update_and_fetch(keys, values)
        shapes.add((mask.shape, seen.shape))
        first_seen.add(float(seen[0, 0, 0, 0].item()))
    assert len(shapes) == len(first_seen) == 1
    begin = max(0, block * BLOCK - WINDOW + 1)
    assert shapes.pop()[0] == (WIDTH, (block + 1) * BLOCK + WIDTH - begin)


@pytest.mark.parametrize("held", [1, 7, 8, 15, 16, 100, 700])
def test_a_fixed_forward_gives_what_a_free_one_does_and_each_position_the_same_bits_anywhere(
    held: int,
) -> None:
    cache, stream = fixed(held)
    free, _ = filled(held, chunk=7)
    at_once = np.array(attend(cache, stream.at(held, WIDTH)))
    assert np.abs(at_once - np.array(attend(free, stream.at(held, WIDTH)))).max() <= 1e-6
    cache.roll_back([held])
    for place in range(min(WIDTH, BLOCK - held % BLOCK)):
        padded = [mx.pad(p, [(0, 0), (0, 0), (0, WIDTH - 1), (0, 0)]) for p in stream.at(held + place, 1)]
        found = np.array(attend(cache, padded))[:, :, 0]
        cache.roll_back([held + place + 1])
        assert np.array_equal(found.view(np.uint32), at_once[:, :, place].view(np.uint32))


def test_blocks_that_begin_behind_what_is_kept_are_refused() -> None:
    cache: Any = WindowCache(1, WINDOW)
    with pytest.raises(ValueError, match="block"):
        cache.fix_window(SLACK + 1, 4)
