"""Caches are cut into pieces only where they can be, and filled only with pieces that tell all they need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mtplxd.families.caches import PairCache, RowCache, StateCache, WindowCache
from mtplxd.families.filling import fill, filler
from mtplxd.families.heads.chain import FirstCache
from mtplxd.families.pieces import Piece, can_cut, cut, has_state, state_bytes
from mtplxd.platform.mlx import mx


def written(layer: Any, count: int, at_once: int = 50) -> Any:
    """The layer with so many positions, whose keys tell them."""
    for begin in range(0, count, at_once):
        places = mx.arange(begin, min(begin + at_once, count)).astype(mx.float32)
        slots = mx.broadcast_to(places[None, None, :, None], (1, 2, places.size, 4))
        layer.update_and_fetch(slots, -slots)
    return layer


def advanced(count: int) -> StateCache:
    layer = StateCache(1, 2)
    layer.advance(count, [mx.full((1, 3), float(count)), None], None)
    return layer


def positions(piece: Piece) -> list[int]:
    keys, values = piece.slots
    assert mx.array_equal(keys, -values).item()
    return [int(place) for place in np.array(keys[0, 0, :, 0])]


@pytest.mark.parametrize("make", [RowCache, lambda: WindowCache(1, 1000)])
def test_a_piece_holds_its_positions_and_keeps_them_whatever_the_row_does(make: Any) -> None:
    layer = written(make(), 130)
    piece = cut(layer, 64, 100)
    mx.eval(piece.arrays)
    layer.roll_back([70])
    written(layer, 60)
    assert piece.whole
    assert positions(piece) == list(range(64, 100))


@pytest.mark.parametrize("make", [RowCache, lambda: WindowCache(1, 1000)])
def test_what_is_written_behind_pieces_leaves_them_as_they_are(make: Any) -> None:
    layer = written(make(), 100)
    pieces = [cut(layer, 0, 64), cut(layer, 64, 100)]
    for some in (pieces, pieces[:1]):
        for _ in range(2):
            other = make()
            fill(other, some)
            assert other.lengths == [some[-1].last]
            other.roll_back([10])
            written(other, 80)
    assert [positions(piece) for piece in pieces] == [list(range(64)), list(range(64, 100))]


@pytest.mark.parametrize("span", [(0, 131), (-1, 5), (90, 80), (130, 140)])
def test_positions_that_are_not_there_are_not_cut(span: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="are not kept"):
        cut(written(RowCache(), 130), *span)


def test_what_a_window_has_dropped_is_not_cut() -> None:
    layer = written(WindowCache(1, 8), 900)
    begin = layer.begins[0]
    assert begin > 64
    piece = cut(layer, begin, begin + 9)
    assert (positions(piece), piece.gap) == (list(range(begin, begin + 9)), False)
    piece = cut(layer, begin - 5, begin + 9)
    assert (positions(piece), piece.gap, piece.begin) == (list(range(begin, begin + 9)), True, begin)
    piece = cut(layer, begin - 20, begin - 5)
    assert (piece.slots, piece.gap, piece.whole) == ((), True, True)


def test_a_window_is_filled_with_what_it_may_see_and_close_behind() -> None:
    donor = written(WindowCache(1, 8), 64, at_once=16)
    pieces = [cut(donor, 0, 64)]
    for first in range(64, 900, 64):
        written_more = mx.broadcast_to(
            mx.arange(first, first + 64).astype(mx.float32)[None, None, :, None], (1, 2, 64, 4)
        )
        donor.update_and_fetch(written_more, -written_more)
        pieces.append(cut(donor, first, first + 64))
    layer = WindowCache(1, 8)
    fill(layer, pieces)
    last = pieces[-1].last
    assert layer.lengths == [last]
    assert 0 < layer.begins[0] <= last - 8 - 256
    keys, _ = layer.held(200)
    assert [int(place) for place in np.array(keys[0, 0, :, 0])] == list(range(last - 200, last))


@pytest.mark.parametrize(
    "make", [RowCache, lambda: WindowCache(1, 8), lambda: PairCache(RowCache(), RowCache())]
)
def test_pieces_put_in_place_one_by_one_make_what_all_at_once_do(make: Any) -> None:
    donor = written(RowCache(), 900, at_once=300)
    pieces = [cut(donor, first, min(first + 64, 900)) for first in range(0, 900, 64)]
    if isinstance(make(), PairCache):
        pieces = [Piece(piece.first, piece.last, parts=(piece, piece)) for piece in pieces]
    whole, layer = make(), make()
    fill(whole, pieces)
    filling = filler(layer, 900)
    for piece in pieces:
        filling.add(piece)
        filling.settle()
        assert layer.lengths == [0]
    filling.finish()
    for one, other in zip(getattr(layer, "caches", [layer]), getattr(whole, "caches", [whole]), strict=True):
        assert (one.lengths, one.slots, one.nbytes) == (other.lengths, other.slots, other.nbytes)
        assert all(mx.array_equal(*pair).item() for pair in zip(one.held(200), other.held(200), strict=True))


def test_what_is_in_place_holds_no_pieces() -> None:
    filling = filler(layer := RowCache(), 900)
    for first in range(0, 900, 100):
        filling.add(cut(written(RowCache(), 900, at_once=300), first, first + 100))
        filling.settle()
        assert filling._waiting == []  # type: ignore[attr-defined]
        mx.eval(layer.state)
    windowed = filler(WindowCache(1, 8), 900)
    for first in range(0, 900, 100):
        windowed.add(cut(written(RowCache(), 900, at_once=300), first, first + 100))
    assert len(windowed._pieces) == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("spans", [[(0, 64), (100, 164)], [(0, 64), (32, 164)], [(64, 164)]])
def test_slots_that_are_missing_or_there_twice_are_found_out(spans: list[tuple[int, int]]) -> None:
    donor = written(RowCache(), 200)
    with pytest.raises(ValueError, match="slots of 164 positions"):
        fill(RowCache(), [cut(donor, *span) for span in spans])


def test_a_state_is_cut_where_the_row_stands_and_nowhere_else() -> None:
    layer = advanced(5)
    here, before, unwanted = cut(layer, 2, 5), cut(layer, 2, 4), cut(layer, 2, 5, with_state=False)
    assert (here.whole, before.whole, unwanted.whole) == (True, False, False)
    assert len(here.arrays) == 1
    assert before.arrays == unwanted.arrays == []
    other = StateCache(1, 2)
    fill(other, [before, here])
    assert other.lengths == [5]
    assert mx.array_equal(other[0], layer[0]).item()
    assert other[1] is None
    other[0] = mx.zeros((1, 3))
    assert here.state[0] is not None
    assert float(here.state[0][0, 0].item()) == 5.0


def test_nothing_goes_on_behind_a_piece_that_does_not_tell_the_state() -> None:
    with pytest.raises(ValueError, match="nothing tells the state of a row at 4"):
        fill(StateCache(1, 2), [cut(advanced(5), 0, 4)])


def test_a_pair_is_as_whole_as_its_parts() -> None:
    pair = PairCache(written(RowCache(), 5), advanced(5))
    assert (can_cut(pair), has_state(pair), state_bytes(pair)) == (True, True, 12)
    assert not cut(pair, 0, 4).whole
    piece = cut(pair, 0, 5)
    other = PairCache(RowCache(), StateCache(1, 2))
    fill(other, [piece])
    assert [part.lengths for part in other.caches] == [[5], [5]]


def test_what_a_head_of_several_layers_carries_comes_with_the_last_piece() -> None:
    first = FirstCache(written(RowCache(), 9), of_target=False)
    first.carries = [{9: [mx.ones((1, 1, 2))], 8: [mx.zeros((1, 1, 2))]}]
    assert not cut(first, 0, 8).whole
    piece = cut(first, 0, 9)
    other = FirstCache(RowCache(), of_target=False)
    fill(other, [piece])
    assert list(other.carries[0]) == [9]
    assert other.lengths == [9]
    empty = cut(FirstCache(RowCache(), of_target=False), 0, 0)
    assert empty.whole
    fill(other := FirstCache(RowCache(), of_target=False), [empty])
    assert (other.lengths, other.carries) == ([0], [{}])


def test_a_cache_of_an_unknown_class_is_not_cut() -> None:
    class Other(RowCache):
        """Keeps more than its ground does."""

    assert can_cut(RowCache())
    assert not can_cut(Other())
    assert not can_cut(PairCache(RowCache(), Other()))
    assert not can_cut(FirstCache(Other(), of_target=False))


def test_a_row_of_several_is_cut_by_itself() -> None:
    for make in (RowCache, lambda: WindowCache(1, 1000)):
        layer = written(make(), 40)
        layer.join(written(make(), 70))
        piece = cut(layer, 10, 60, row=1)
        assert positions(piece) == list(range(10, 60))
        with pytest.raises(ValueError, match="are not kept"):
            cut(layer, 10, 60, row=0)
    states = advanced(5)
    states.join(advanced(9))
    assert not cut(states, 0, 5, row=1).whole
    assert float(cut(states, 0, 9, row=1).state[0][0, 0].item()) == 9.0  # type: ignore[index]


def test_what_a_window_needs_behind_it_must_be_there() -> None:
    donor = written(WindowCache(1, 8), 900, at_once=300)
    begin = donor.begins[0]
    assert begin > 64
    enough, short = cut(donor, 64, 900), cut(donor, 890, 900)
    assert enough.gap
    layer = WindowCache(1, 8)
    fill(layer, [cut(written(WindowCache(1, 8), 64), 0, 64), enough])
    assert layer.begins == [begin]
    assert layer.slots == [900 - begin]
    with pytest.raises(ValueError, match="has no slots before 890"):
        fill(WindowCache(1, 8), [short])
