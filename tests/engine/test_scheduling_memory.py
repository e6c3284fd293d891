"""What rows take is foreseen from one row's caches, whoever joins, grows or leaves, and weighed before one comes in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.footprint import footprint_of, measure_footprint, room_of
from mtplxd.engine.room import Room
from mtplxd.engine.scheduling.admission import (
    HEADROOM,
    NOTHING,
    Admit,
    Kept,
    Never,
    Wait,
    admit,
    judge_alone,
    row_need,
)
from mtplxd.engine.scheduling.footprint import STEP, Held, RowHold, bytes_of, padded
from mtplxd.engine.scheduling.preemption import Relief
from mtplxd.engine.served import Served
from mtplxd.families.caches import PairCache, RowCache, WindowCache
from mtplxd.families.caches import slots as cache_slots
from mtplxd.packs.memory import Footprint
from mtplxd.platform.mlx import mx
from support.zoo import NAMES, open_zoo

FOOT = Footprint(position=10, row=1000)


def fresh() -> list[Any]:
    """A layer that keeps all, one with a window, one of two caches."""
    return [RowCache(1), WindowCache(1, 300), PairCache(RowCache(1), RowCache(1))]


def grow(cache: Sequence[Any], rows: int, count: int) -> None:
    for layer in cache:
        for part in layer.caches if isinstance(layer, PairCache) else [layer]:
            part.update_and_fetch(mx.zeros((rows, 2, count, 3)), mx.zeros((rows, 2, count, 3)))
            mx.eval(part.state)


def held_bytes(cache: Sequence[Any]) -> int:
    return sum(layer.nbytes for layer in cache)


def test_capacity_grows_as_the_caches_do() -> None:
    assert STEP == cache_slots.STEP


def test_each_kind_of_cache_counts_as_it_grows() -> None:
    cache = fresh()
    grow(cache, 1, 3)
    assert footprint_of(cache, beside=7) == Footprint(3 * 48, 7, ((1536, 48),))


moves = st.lists(st.tuples(st.sampled_from(("join", "leave", "grow")), st.integers(1, 700)), max_size=12)


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(moves)
def test_what_a_batch_takes_is_foreseen_move_by_move(script: list[tuple[str, int]]) -> None:
    first = fresh()
    grow(first, 1, 3)
    footprint = footprint_of(first)
    batch: list[Any] = []
    lengths: list[int] = []
    for move, size in script:
        held = room_of(batch)
        if move == "join" or not lengths:
            lengths.append(size)
            foreseen = padded(footprint, len(lengths), max(lengths), held)
            coming = fresh()
            grow(coming, 1, size)
            if batch:
                for mine, other in zip(batch, coming, strict=True):
                    mine.join(other)
            else:
                batch = coming
        elif move == "leave":
            place = size % len(lengths)
            lengths[place] = lengths[-1]
            lengths.pop()
            for layer in batch:
                layer.leave(place)
            if not lengths:
                batch = []
                continue
            foreseen = padded(footprint, len(lengths), max(lengths), held)
        else:
            lengths = [length + size % 300 for length in lengths]
            foreseen = padded(footprint, len(lengths), max(lengths), held)
            if size % 300:
                grow(batch, len(lengths), size % 300)
        assert held_bytes(batch) <= foreseen
        exact = sum(layer.nbytes for layer in batch if not isinstance(layer, WindowCache))
        assert exact == padded(Footprint(footprint.position), len(lengths), max(lengths), held)


@pytest.mark.parametrize("name", NAMES)
def test_a_measured_model_takes_what_was_measured(name: str, tmp_path: Path) -> None:
    model = open_zoo(name, tmp_path)
    footprint = measure_footprint(model)
    cache = model.target.make_cache(1)
    body, taps = model.target.run(mx.zeros((1, 40), mx.int32), cache)
    assert model.head is not None
    head_cache = model.head.make_cache(1, cache)
    mx.eval(body, model.head.absorb(mx.zeros((1, 40), mx.int32), taps, head_cache))
    assert footprint.position * STEP > 0
    taken = held_bytes(cache) + held_bytes(head_cache)
    beside = footprint.row
    assert taken <= footprint.bytes(1, STEP) <= taken + beside


def row(name: str, length: int, most: int | None = None, batch: str = "m") -> RowHold:
    return RowHold(name, batch, FOOT, length, length if most is None else most)


def test_every_row_of_a_batch_is_as_long_as_its_longest() -> None:
    assert bytes_of([row("a", 10), row("b", 300)]) == 2 * (1000 + 512 * 10)
    assert bytes_of([row("a", 10), row("b", 300, batch="n")]) == 2000 + 768 * 10


def test_the_room_that_rows_left_behind_is_counted_until_it_is_given_back() -> None:
    one = [row("a", 10)]
    assert bytes_of(one * 5, held={"m": Held(8, 256)}) == 8 * (1000 + 2560)
    assert bytes_of(one * 4, held={"m": Held(8, 256)}) == 4 * (1000 + 2560)
    assert bytes_of(one * 3, held={"m": Held(4, 1024)}) == 3 * (1000 + 2560)


def test_a_request_that_may_go_on_to_the_end_of_the_context_is_not_taken_to() -> None:
    need = row_need(100, 50, 4096)
    assert (need.now, need.most) == (150, 150)
    need = row_need(100, 2000, 4096)
    assert (need.now, need.most) == (100 + HEADROOM, 2100)
    need = row_need(100, 4096, 4096)
    assert need.now == need.most == 100 + HEADROOM
    assert row_need(4090, 4000, 4096).most == 4096


def test_what_fits_to_its_end_is_let_into_an_empty_service_and_nothing_else_is() -> None:
    need = row_need(100, 1000, 4096)
    alone = padded(FOOT, 1, need.most)
    assert judge_alone(need, FOOT, alone) is None
    never = judge_alone(need, FOOT, alone - 1)
    assert never == Never(alone, alone - 1)
    assert "shorten" in str(never.error)
    assert (never.error.needed, never.error.available) == (alone, alone - 1)


def test_a_row_waits_where_it_would_only_fit_without_headroom() -> None:
    here = [row("a", 200, 4000)]
    coming = row("b", 200, 4000)
    tight = 2 * (1000 + 10 * 256)
    assert isinstance(admit(coming, here, tight), Wait)
    assert admit(coming, here, 2 * (1000 + 10 * 512)) == Admit()


def test_optimistic_the_tokens_it_may_make_later_are_not_waited_for() -> None:
    assert admit(row("b", 100, 100_000), [row("a", 100, 100_000)], 2 * (1000 + 10 * 512)) == Admit()


def test_a_reason_to_wait_has_numbers() -> None:
    waits = admit(row("b", 200, 4000), [row("a", 200, 4000)], 5000)
    assert isinstance(waits, Wait)
    assert "5000" in waits.reason
    assert str(2 * (1000 + 10 * 512)) in waits.reason


def test_snapshots_go_for_any_row_and_copies_only_for_the_first() -> None:
    one, two = 1000 + 2560, 2 * (1000 + 2560)
    kept = Kept(snapshots=500, copies=300)
    assert admit(row("b", 10), [row("a", 10)], two + 800, kept) == Admit(NOTHING)
    assert admit(row("b", 10), [row("a", 10)], two + 700, kept) == Admit(Kept(100, 0))
    assert admit(row("b", 10), [row("a", 10)], two + 300, kept) == Admit(Kept(500, 0))
    assert isinstance(admit(row("b", 10), [row("a", 10)], two + 299, kept), Wait)
    assert admit(row("b", 10), [], one + 100, kept) == Admit(Kept(500, 200))
    assert admit(row("b", 10), [], one, kept) == Admit(Kept(500, 300))
    assert admit(row("b", 10), [], one - 1, kept) == Never(one, one - 1)


holds = st.builds(
    lambda number, batch, length, more: RowHold(str(number), batch, FOOT, length, length + more),
    st.integers(0, 10**6),
    st.sampled_from("mn"),
    st.integers(0, 3000),
    st.integers(0, 3000),
)


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.lists(holds, max_size=8), holds, st.integers(0, 2_000_000), st.integers(0, 9999), st.integers(0, 9999)
)
def test_what_is_let_in_fits_with_headroom_for_all(
    rows: list[RowHold], coming: RowHold, budget: int, snapshots: int, copies: int
) -> None:
    kept = Kept(snapshots, copies)
    verdict = admit(coming, rows, budget, kept)
    left = snapshots + copies
    if isinstance(verdict, Admit):
        assert 0 <= verdict.free.snapshots <= snapshots
        assert 0 <= verdict.free.copies <= (copies if not rows else 0)
        left -= verdict.free.snapshots + verdict.free.copies
        for tokens in (0, 1, HEADROOM // 2, HEADROOM):
            assert bytes_of([*rows, coming], tokens) + left <= budget
    elif isinstance(verdict, Wait):
        assert rows
        assert bytes_of([*rows, coming], HEADROOM) + copies > budget
    else:
        assert not rows
        assert verdict.needed > verdict.available


class OnTheWay:
    """Prefixes that keep `nbytes` and read `on_the_way` from the disk."""

    block, nbytes, on_the_way = 64, 10_000, 0

    def __init__(self) -> None:
        self.bounds: list[int] = []

    def bound(self, spare: int) -> None:
        self.bounds.append(spare)


def served_of(length: int, name: str = "row") -> Any:
    model = SimpleNamespace(footprint=FOOT, context=1 << 20, apart=())
    request = SimpleNamespace(
        id=name, model=model, prompt=[1] * length, max_tokens=100, priority="interactive",
        sampler=SimpleNamespace(reproducible=False),
    )  # fmt: skip
    ticket = SimpleNamespace(id=name, submitted=0.0)
    stream = SimpleNamespace(request=request, row=SimpleNamespace(tokens=[1] * length), made=0)
    return Served(ticket, stream, None)  # type: ignore[arg-type]


def test_what_is_on_its_way_from_the_disk_is_nobody_elses_room() -> None:
    """Neither is it promised to a newcomer, nor may it grow beyond what rows have no use for, nor does it cost a row
    its place."""
    shelf, row = OnTheWay(), served_of(100)
    alone = padded(FOOT, 1, 200)
    room = Room(8, lambda _: 2 * alone + padded(FOOT, 2, 200), shelf)  # type: ignore[arg-type]
    coming = served_of(100, "coming").request
    room.measure([row], [], {})
    assert shelf.bounds == [2 * alone + padded(FOOT, 2, 200) - alone]
    assert room.judge(coming, 100, [row], [], {}) == Relief(Kept(shelf.nbytes - 2 * alone))
    shelf.on_the_way = 2 * alone
    room.measure([row], [], {})
    assert room.held == 3 * alone
    assert room.judge(coming, 100, [row], [], {}) == Relief(Kept(shelf.nbytes))
    shelf.on_the_way += 1
    room.measure([row], [], {})
    assert room.judge(coming, 100, [row], [], {}) is None
    shelf.on_the_way = 5 * alone
    room.measure([row], [], {})
    assert room.relieve([row], [], {}) == Relief(Kept(shelf.nbytes))
