"""Rows whose layer has a state join, leave and are copied between rounds: each keeps its own."""

from __future__ import annotations

import pytest
from mtplxd.families.caches import StateCache
from mtplxd.platform.mlx import mx
from support.cache_streams import ROUNDED, resting


def state(rows: int, number: float | None, length: int = 3) -> StateCache:
    """A cache of two slots, one of them small, of rows alike; None for nothing written."""
    cache = StateCache(rows, 2)
    if number is not None:
        cache.advance(length, [mx.full((rows, 3, 4), number), mx.full((rows, 5), number + 0.5)], None)
    return cache


def numbers(cache: StateCache) -> list[list[float]]:
    """By slot, the first number of each row."""
    return [array.reshape(len(cache.lengths), -1)[:, 0].tolist() for array in cache.state]


def test_states_join_leave_and_are_copied_by_row() -> None:
    cache = state(0, None)
    for number, length in ((1.0, 3), (2.0, 4), (3.0, 5)):
        cache.join(state(1, number, length))
    assert (numbers(cache), cache.lengths) == ([[1, 2, 3], [1.5, 2.5, 3.5]], [3, 4, 5])
    copy = cache.copy_row(1)
    cache.leave(0)
    assert (numbers(cache), cache.lengths) == ([[3, 2], [3.5, 2.5]], [5, 4])
    assert (numbers(copy), copy.lengths) == ([[2], [2.5]], [4])
    cache.leave(1)
    cache.leave(0)
    assert (cache.state, cache.lengths, cache.nbytes) == ([], [], 0)


@pytest.mark.parametrize("order", [(None, 2.0), (2.0, None), (None, None, 2.0)])
def test_a_state_that_nothing_was_written_to_is_zeros_beside_others(order: tuple[float | None, ...]) -> None:
    cache = StateCache(0, 2)
    for number in order:
        cache.join(state(1, number))
    assert numbers(cache)[0] == [number or 0 for number in order]
    assert cache.lengths == [0 if number is None else 3 for number in order]


def test_what_a_state_went_back_by_is_not_kept_for_rows_that_moved() -> None:
    cache, before = state(1, 1.0), resting()
    held = cache.nbytes
    cache.advance(1, [array + 1 for array in cache.slots], None)
    cache.join(state(1, 5.0))
    assert cache.nbytes == held // 2 * 2 + held
    assert resting() - before <= held + ROUNDED
    with pytest.raises(ValueError, match="cannot roll"):
        cache.roll_back([3, 3])
    cache.roll_back(cache.lengths)
