"""Rows join, leave and are copied between rounds: each keeps its own, and memory follows those that are left.

What each row should give is asked of a cache that never had another row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.families.caches import PairCache, RowCache, StateCache, WindowCache
from mtplxd.families.caches.slots import STEP
from mtplxd.families.heads.carrying import FirstCache
from mtplxd.families.heads.gemma4_reading import BorrowedCache
from mtplxd.platform.mlx import Array, mx
from support.cache_streams import ROUNDED, Stream, attend, resting
from support.crowd import poison

WINDOW = 8
TOLERANCE = 2e-6
Make = Callable[[int], Any]
KINDS: dict[str, Make] = {
    "rows": RowCache,
    "window": lambda rows: WindowCache(rows, WINDOW),
    "pair": lambda rows: PairCache(RowCache(rows), WindowCache(rows, WINDOW)),
    "first": lambda rows: FirstCache(RowCache(rows), of_target=False),
}
kinds = pytest.mark.parametrize("kind", KINDS)
STREAMS = [Stream(seed) for seed in range(8)]


def parts(cache: Any) -> list[Any]:
    """The caches with slots that a layer's is made of."""
    if isinstance(cache, PairCache):
        return list(cache.caches)
    return [cache.inner if isinstance(cache, FirstCache) else cache]


def forward(cache: Any, inputs: list[Array]) -> np.ndarray:
    return np.stack([np.array(attend(part, inputs)) for part in parts(cache)])


def filled(kind: str, stream: Stream, held: int, chunk: int = 100) -> Any:
    """A row alone behind `held` positions of a stream."""
    cache = KINDS[kind](1)
    for begin in range(0, held, chunk):
        forward(cache, stream.at(begin, min(chunk, held - begin)))
    return cache


def gathered(kind: str, *held: int) -> Any:
    """The rows of the first streams behind so many positions each, joined one by one."""
    cache = KINDS[kind](0)
    for stream, count in zip(STREAMS, held, strict=False):
        cache.join(filled(kind, stream, count))
    return cache


def assert_rows(kind: str, cache: Any, rows: list[tuple[Stream, int]], count: int = 3) -> None:
    """The next positions of each row see what they would alone. The cache is as before, after."""
    lengths = [held for _, held in rows]
    assert cache.lengths == lengths
    inputs = [mx.concatenate(p) for p in zip(*(s.at(n, count) for s, n in rows), strict=True)]
    found = forward(cache, inputs)
    cache.roll_back(lengths)
    for b, (stream, held) in enumerate(rows):
        alone = forward(filled(kind, stream, held), stream.at(held, count))
        assert np.abs(found[:, b] - alone[:, 0]).max() <= TOLERANCE, b


@kinds
@settings(deadline=None, max_examples=25, derandomize=True, database=None)
@given(data=st.data())
def test_any_order_of_joins_leaves_rounds_and_copies_leaves_each_row_its_own(
    kind: str, data: st.DataObject
) -> None:
    cache, rows, coming = KINDS[kind](0), list[list[Any]](), list[Any]()
    for _ in range(data.draw(st.integers(1, 18))):
        move = data.draw(
            st.sampled_from(["join", "join", "leave", "round", "round", "copy", "empty", "ready", "come"])
        )
        if move == "join" and len(rows) < 6:
            stream = data.draw(st.sampled_from(STREAMS))
            held = data.draw(st.sampled_from([1, 2, 7, 8, 9, 40, 255, 256, 257, 270, 530]))
            cache.join(filled(kind, stream, held))
            rows.append([stream, held])
        elif move == "empty" and len(rows) < 6:
            cache.join(filled(kind, STREAMS[0], 0))
            rows.append([STREAMS[0], 0])
        elif move == "leave" and rows:
            place = data.draw(st.integers(0, len(rows) - 1))
            cache.leave(place)
            rows[place] = rows[-1]
            rows.pop()
        elif move == "round" and rows:
            count = data.draw(st.integers(1, 4))
            inputs = [mx.concatenate(p) for p in zip(*(s.at(n, count) for s, n in rows), strict=True)]
            forward(cache, inputs)
            for row in rows:
                row[1] += data.draw(st.integers(0, count))
            cache.roll_back([held for _, held in rows])
        elif move == "ready" and len(rows) < 6:
            stream, held = (
                data.draw(st.sampled_from(STREAMS)),
                data.draw(st.sampled_from([0, 1, 40, 256, 530])),
            )
            coming = [filled(kind, stream, held), stream, held]
            cache.make_ready(coming[0])
        elif move == "come" and coming and len(rows) < 6:
            cache.join(coming[0])
            rows.append(coming[1:])
            coming = []
        elif move == "copy" and rows:
            place = data.draw(st.integers(0, len(rows) - 1))
            assert_rows(kind, cache.copy_row(place), [tuple(rows[place])])
        for part in parts(cache):
            assert part.keys is None or part.keys.shape[0] >= len(rows)
        if rows:
            assert_rows(kind, cache, [tuple(row) for row in rows])


@kinds
@pytest.mark.parametrize("place", range(4))
def test_the_last_row_takes_the_place_of_one_that_leaves(kind: str, place: int) -> None:
    held = [5, 300, 17, 41]
    cache = gathered(kind, *held)
    cache.leave(place)
    rows = list(zip(STREAMS, held, strict=False))
    rows[place] = rows[-1]
    assert_rows(kind, cache, rows[:-1])


@kinds
@pytest.mark.parametrize("held", [(0, 5), (5, 0), (0, 0), (300, 0, 2), (0, 300)])
def test_a_row_that_nothing_was_written_for_joins_and_is_joined(kind: str, held: tuple[int, ...]) -> None:
    cache = gathered(kind, *held)
    assert_rows(kind, cache, list(zip(STREAMS, held, strict=False)))
    cache.leave(0)
    assert_rows(
        kind, cache, [(STREAMS[len(held) - 1], held[-1]), *zip(STREAMS[1:-1], held[1:-1], strict=False)]
    )


@kinds
def test_several_rows_join_several(kind: str) -> None:
    cache, others = gathered(kind, 10, 20), KINDS[kind](0)
    for stream, count in ((STREAMS[4], 400), (STREAMS[5], 3), (STREAMS[6], 90)):
        others.join(filled(kind, stream, count))
    others.leave(1)
    cache.join(others)
    rows = [(STREAMS[0], 10), (STREAMS[1], 20), (STREAMS[4], 400), (STREAMS[6], 90)]
    assert_rows(kind, cache, rows)


@kinds
def test_a_row_that_was_rolled_back_to_nothing_begins_anew_beside_others(kind: str) -> None:
    cache = gathered(kind, 300, 40)
    cache.roll_back([0, 40])
    assert_rows(kind, cache, [(STREAMS[0], 0), (STREAMS[1], 40)])
    cache.join(filled(kind, STREAMS[2], 9))
    cache.leave(1)
    assert_rows(kind, cache, [(STREAMS[0], 0), (STREAMS[2], 9)])


@kinds
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32])
def test_rows_keep_the_dtype_they_are_in(kind: str, dtype: Any) -> None:
    def alone(held: int) -> Any:
        cache = KINDS[kind](1)
        for part in parts(cache) if held else []:
            mx.eval(attend(part, [numbers.astype(dtype) for numbers in STREAMS[0].at(0, held)]))
        return cache

    cache = KINDS[kind](0)
    for held in (0, 30, 300):
        cache.join(alone(held))
    cache.leave(0)
    assert {array.dtype for array in (*cache.state, *cache.copy_row(0).state)} == {dtype}


def test_windows_that_begin_at_different_positions_share_forwards() -> None:
    cache = gathered("window", 1500, 3, 700)
    assert len(set(cache.begins)) == 3
    assert_rows("window", cache, [(STREAMS[0], 1500), (STREAMS[1], 3), (STREAMS[2], 700)])
    cache.leave(0)
    assert cache.begins[0] > cache.begins[1] == 0
    assert_rows("window", cache, [(STREAMS[2], 700), (STREAMS[1], 3)])


def test_windows_move_each_row_by_itself_with_room_for_more() -> None:
    rows: list[tuple[Stream, int]] = [(STREAMS[0], 500), (STREAMS[1], 2), (STREAMS[2], 300)]
    cache = gathered("window", 500, 2, 300)
    cache.join(filled("window", STREAMS[3], 60))
    cache.leave(1)
    rows = [(STREAMS[0], 500), (STREAMS[3], 60), (STREAMS[2], 300)]
    assert cache.keys.shape[0] > len(rows)
    for _ in range(90):
        inputs = [mx.concatenate(p) for p in zip(*(s.at(n, 7) for s, n in rows), strict=True)]
        forward(cache, inputs)
        rows = [(stream, held + 7) for stream, held in rows]
    assert min(cache.begins) > 0
    assert_rows("window", cache, rows)


# Rows that are copied ahead


@kinds
@pytest.mark.parametrize("held", [1, 40, 255, 256, 700])
@pytest.mark.parametrize("mine", [(20,), (250, 20), (250, 20, 9)])
def test_a_row_copied_ahead_is_untouched_by_the_rounds_until_it_joins(
    kind: str, mine: tuple[int, ...], held: int
) -> None:
    cache, joining = gathered(kind, *mine), filled(kind, STREAMS[7], held)
    cache.make_ready(joining)
    rows = list(zip(STREAMS, mine, strict=False))
    for _ in range(110):  # over the end of what there was room for, and of windows
        inputs = [mx.concatenate(p) for p in zip(*(s.at(n, 5) for s, n in rows), strict=True)]
        forward(cache, inputs)
        rows = [(stream, length + 5) for stream, length in rows]
    assert cache.is_ready(joining)
    assert_rows(kind, cache, rows)
    cache.join(joining)
    assert_rows(kind, cache, [*rows, (STREAMS[7], held)])


@kinds
def test_joining_after_it_was_copied_copies_nothing(kind: str) -> None:
    cache, joining = gathered(kind, 20, 30), filled(kind, STREAMS[7], 700)
    cache.make_ready(joining)
    before = [(array.shape, id(array)) for part in parts(cache) for array in part.state]
    cache.join(joining)
    assert [(array.shape, id(array)) for part in parts(cache) for array in part.state] == before
    assert all(part.keys is None for part in parts(joining))


@kinds
def test_who_joins_or_leaves_meanwhile_undoes_it(kind: str) -> None:
    cache, joining = gathered(kind, 20, 30, 40), filled(kind, STREAMS[7], 300)
    cache.make_ready(joining)
    cache.leave(0)
    assert not cache.is_ready(joining)
    cache.make_ready(joining)
    cache.join(filled(kind, STREAMS[5], 9))
    assert not cache.is_ready(joining)
    cache.make_ready(joining)
    cache.forget_coming()
    assert not cache.is_ready(joining)
    cache.join(joining)
    assert_rows(kind, cache, [(STREAMS[2], 40), (STREAMS[1], 30), (STREAMS[5], 9), (STREAMS[7], 300)])


@kinds
def test_the_room_for_one_that_does_not_come_is_given_back(kind: str) -> None:
    cache, joining = gathered(kind, 20, 30), filled(kind, STREAMS[7], 700)
    before = cache.nbytes
    cache.make_ready(joining)
    assert cache.nbytes > before
    cache.forget_coming()
    assert cache.nbytes == before
    assert_rows(kind, cache, [(STREAMS[0], 20), (STREAMS[1], 30)])


@kinds
def test_there_is_nothing_to_copy_ahead_of_the_first_row(kind: str) -> None:
    cache, joining = KINDS[kind](0), filled(kind, STREAMS[0], 5)
    assert cache.is_ready(joining)
    cache.make_ready(joining)
    assert cache.nbytes == 0
    cache.join(joining)
    assert_rows(kind, cache, [(STREAMS[0], 5)])


def test_layers_without_slots_have_nothing_to_copy_ahead() -> None:
    for one, other in (
        (StateCache(1), StateCache(1)),
        (BorrowedCache(1, {}, 0, ()), BorrowedCache(1, {}, 0, ())),
    ):
        assert one.is_ready(other)  # type: ignore[arg-type]
        one.make_ready(other)  # type: ignore[arg-type]
        one.forget_coming()
        assert one.lengths == [0]


# Memory


@kinds
def test_what_joined_is_copied_and_let_go_of(kind: str) -> None:
    cache, before = gathered(kind, 10, 20), resting()
    mine = cache.nbytes
    joining = filled(kind, STREAMS[2], 900)
    cache.join(joining)
    assert resting() - before <= cache.nbytes - mine + ROUNDED
    del joining
    assert resting() - before <= cache.nbytes - mine + ROUNDED


@kinds
def test_a_copied_row_keeps_no_other_alive(kind: str) -> None:
    before = resting()
    cache = gathered(kind, 10, 900, 300)
    copy = cache.copy_row(0)
    held = copy.nbytes
    del cache
    assert held <= 2 * len(parts(copy)) * STEP * 2 * 4 * 4
    assert resting() - before <= held + ROUNDED


@kinds
def test_memory_follows_the_longest_row_that_is_left(kind: str) -> None:
    cache = gathered(kind, 10, 3000, 200)
    for part in parts(cache):
        if isinstance(part, RowCache):
            assert part.keys.shape[2] == 3072
    cache.leave(1)
    assert {part.keys.shape[2] for part in parts(cache)} == {STEP}
    assert_rows(kind, cache, [(STREAMS[0], 10), (STREAMS[2], 200)])


@kinds
def test_room_for_rows_grows_by_half_and_is_given_back_when_half_is_empty(kind: str) -> None:
    cache, rooms = KINDS[kind](0), []
    for _ in range(12):
        cache.join(filled(kind, STREAMS[0], 4))
        rooms.append(parts(cache)[0].keys.shape[0])
    assert rooms == [1, 2, 3, 4, 6, 6, 9, 9, 9, 13, 13, 13]
    rooms = []
    while len(cache.lengths) > 1:
        cache.leave(0)
        rooms.append(parts(cache)[0].keys.shape[0])
    assert rooms == [13, 13, 13, 13, 13, 6, 6, 6, 3, 3, 1]


@kinds
def test_a_row_that_comes_and_goes_at_a_border_moves_nobody(kind: str) -> None:
    cache = gathered(kind, 10, 10, 10, 10)
    cache.join(filled(kind, STREAMS[4], 5))
    shapes = set()
    for _ in range(6):
        cache.leave(4)
        shapes.add(parts(cache)[0].keys.shape)
        cache.join(filled(kind, STREAMS[4], 5))
        shapes.add(parts(cache)[0].keys.shape)
    assert len(shapes) == 1


def peak_of(work: Callable[[], None]) -> int:
    """Bytes that the work takes above what is held before it."""
    before = resting()
    mx.reset_peak_memory()
    work()
    mx.synchronize()
    return int(mx.get_peak_memory()) - before


def big(rows: int, held: int = 2000) -> tuple[RowCache, int]:
    """A cache with room for one more row, and the bytes of a row."""
    cache = RowCache(0)
    for _ in range(rows):
        one, numbers = RowCache(1), mx.ones((1, 2, held, 64))
        one.update_and_fetch(numbers, numbers)
        cache.join(one)
    assert cache.keys.shape[0] > rows
    return cache, cache.nbytes // cache.keys.shape[0]


def test_one_that_joins_or_leaves_is_copied_alone() -> None:
    cache, row = big(8)
    one, numbers = RowCache(1), mx.ones((1, 2, 2000, 64))
    one.update_and_fetch(numbers, numbers)
    mx.eval(one.state)
    assert peak_of(lambda: cache.join(one)) <= 1.5 * row
    assert peak_of(lambda: cache.leave(3)) <= 1.5 * row


def test_writes_stay_in_place_after_rows_came_and_went() -> None:
    cache, row = big(5)
    cache.leave(0)
    new = mx.ones((4, 2, 2, 64))
    mx.eval(new)

    def write() -> None:
        cache.update_and_fetch(new, new)
        mx.eval(cache.state)

    assert peak_of(write) <= 0.2 * row


def test_a_row_alone_is_written_on_the_scalar_path_again() -> None:
    cache = gathered("rows", 20, 30)
    cache.leave(0)
    assert cache.keys.shape[0] == 1
    assert cache.offset == 30
    assert cache.make_mask(1) is None
    assert cache.make_mask(4) == "causal"


# Rows that went wrong


@kinds
def test_numbers_that_are_none_leave_with_their_row(kind: str) -> None:
    cache = gathered(kind, 280, 8, 8)
    bad = [part * mx.array([1.0, 1.0, mx.nan])[:, None, None, None] for part in three(8)]
    forward(cache, bad)
    cache.roll_back([280, 8, 8])
    cache.leave(2)
    cache.join(filled(kind, STREAMS[3], 2))
    assert_rows(kind, cache, [(STREAMS[0], 280), (STREAMS[1], 8), (STREAMS[3], 2)])
    forward(cache, bad)
    cache.roll_back([280, 8, 2])
    cache.leave(1)
    cache.leave(1)
    cache.join(filled(kind, STREAMS[2], 11))
    assert_rows(kind, cache, [(STREAMS[0], 280), (STREAMS[2], 11)])


def three(count: int) -> list[Array]:
    """The next positions of three rows."""
    return [mx.concatenate(p) for p in zip(*(s.at(0, count) for s in STREAMS[:3]), strict=True)]


@kinds
def test_a_row_that_takes_the_place_of_a_bad_one_sees_none_of_it(kind: str) -> None:
    cache = gathered(kind, 8, 280, 3)
    bad = [part * mx.array([mx.nan, 1.0, 1.0])[:, None, None, None] for part in three(8)]
    forward(cache, bad)
    cache.roll_back([8, 280, 3])
    cache.leave(0)
    assert_rows(kind, cache, [(STREAMS[2], 3), (STREAMS[1], 280)])


@kinds
def test_what_lies_outside_every_row_is_never_read(kind: str) -> None:
    cache = gathered(kind, 500, 3, 90)
    cache.leave(1)
    poison(cache)
    assert_rows(kind, cache, [(STREAMS[0], 500), (STREAMS[2], 90)])


@pytest.mark.parametrize("fixed", [0, 1])
@pytest.mark.parametrize("kind", ["rows", "window"])
def test_rows_of_a_fixed_window_share_no_forward(kind: str, fixed: int) -> None:
    pair = [filled(kind, STREAMS[0], 4), filled(kind, STREAMS[1], 9)]
    pair[fixed].fix_window(16, 4)
    with pytest.raises(ValueError, match="fixed window"):
        pair[0].join(pair[1])
    assert [cache.lengths for cache in pair] == [[4], [9]]


@pytest.mark.parametrize("kind", ["rows", "window"])
def test_a_copied_row_keeps_its_fixed_window(kind: str) -> None:
    cache = filled(kind, STREAMS[0], 20)
    cache.fix_window(16, 4)
    copy = cache.copy_row(0)
    assert copy.fixed == cache.fixed == (16, 4)
    assert mx.array_equal(copy.make_mask(4), cache.make_mask(4)).item()


# Caches that hold no slots of their own


def test_a_borrowed_cache_counts_by_row_and_reads_what_it_is_told_to() -> None:
    body: list[Any] = [gathered("rows", 12, 5), gathered("rows", 12, 5)]
    lent = BorrowedCache(0, {"full_attention": 1}, WINDOW, body)
    for pairs in (11, 4):
        one = BorrowedCache(1, {"full_attention": 1}, WINDOW, body)
        one.count(pairs)
        lent.join(one)
    assert lent.lengths == [11, 4]
    copy = lent.copy_row(1)
    alone = [layer.copy_row(1) for layer in body]
    copy.read_from(alone)
    assert copy.position(0) == 4
    assert mx.array_equal(copy.read(0)["full_attention"].keys, alone[1].keys[..., :5, :]).item()
    lent.leave(0)
    assert (lent.lengths, copy.lengths) == ([4], [4])


def test_what_is_carried_goes_with_its_row() -> None:
    cache = KINDS["first"](0)
    for held in (5, 9, 7):
        one = filled("first", STREAMS[0], held)
        one.carries = [{held: [mx.full((1, 1, 4), held)]}]
        cache.join(one)
    copy = cache.copy_row(1)
    cache.leave(0)
    assert [list(carried) for carried in cache.carries] == [[7], [9]]
    cache.roll_back([7, 2])
    assert [list(carried) for carried in cache.carries] == [[7], []]
    assert [list(carried) for carried in copy.carries] == [[9]]
