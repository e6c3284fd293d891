"""Who gives a place or memory up: who loses least, no more than needed, never the last one, never twice at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.scheduling.admission import HEADROOM, NOTHING, Admit, Kept, admit
from mtplxd.engine.scheduling.footprint import Held, RowHold, bytes_of
from mtplxd.engine.scheduling.preemption import (
    ASIDE_S,
    PROGRESS,
    Aside,
    AsideView,
    Relief,
    RowView,
    make_room,
    make_way,
    next_back,
)
from mtplxd.packs.memory import Footprint

FOOT = Footprint(position=10, row=0)
ROW = 2560
"""Bytes of a row of one step."""


def row(
    name: str,
    since: float,
    length: int = 100,
    *,
    background: bool = False,
    owed: bool = False,
    made: int = 0,
    batch: str = "m",
) -> RowView:
    hold = RowHold(name, batch, FOOT, length, 100_000)
    return RowView(hold, since, background, owed, made)


def gone(relief: Relief | None) -> list[str]:
    assert relief is not None
    return [aside.id for aside in relief.aside]


def test_nobody_goes_while_all_fit() -> None:
    assert make_room([row("a", 0), row("b", 1)], 2 * ROW, NOTHING) == Relief()


def test_the_next_step_of_capacity_is_foreseen() -> None:
    rows = [row("a", 0, 255), row("b", 1, 256)]
    assert gone(make_room(rows, 4 * ROW, more=1)) == []
    assert gone(make_room(rows, 4 * ROW - 1, more=1)) == ["b"]
    assert gone(make_room(rows, 4 * ROW - 1, more=0)) == []


def test_who_came_last_goes_first_and_background_before_all() -> None:
    rows = [row("old", 0), row("back", 1, background=True), row("new", 2), row("late", 3, background=True)]
    assert gone(make_room(rows, 3 * ROW)) == ["late"]
    assert gone(make_room(rows, 2 * ROW)) == ["late", "back"]
    assert gone(make_room(rows, ROW)) == ["late", "back", "new"]


def test_the_last_row_is_never_set_aside_but_may_be_beyond_help() -> None:
    assert make_room([row("a", 0)], ROW - 1) == Relief(hopeless="a")
    assert make_room([row("a", 0, 300), row("b", 1, 10)], 2 * ROW - 1) == Relief(hopeless="a")


def test_nobody_goes_in_vain() -> None:
    """The newest is short and frees little; once the long one is gone it need not go."""
    rows = [row("a", 0), row("long", 1, 2000), row("short", 2)]
    assert gone(make_room(rows, 3 * ROW)) == ["long"]


def test_room_that_a_batch_keeps_makes_another_go_too() -> None:
    rows = [row(name, place) for place, name in enumerate("abcde")]
    held = {"m": Held(room=6, slots=256)}
    assert gone(make_room(rows, 6 * ROW, held=held)) == []
    assert gone(make_room(rows, 5 * ROW, held=held)) == ["e", "d"]


def test_snapshots_go_before_copies_and_copies_before_rows() -> None:
    rows, kept = [row("a", 0), row("b", 1)], Kept(snapshots=1000, copies=500)
    assert make_room(rows, 2 * ROW + 1500, kept) == Relief()
    assert make_room(rows, 2 * ROW + 1400, kept) == Relief(Kept(100, 0))
    assert make_room(rows, 2 * ROW + 400, kept) == Relief(Kept(1000, 100))
    assert make_room(rows, 2 * ROW, kept) == Relief(Kept(1000, 500))
    assert gone(make_room(rows, 2 * ROW - 1, kept)) == ["b"]


def test_a_row_is_copied_only_where_the_others_keep_their_headroom_beside_it() -> None:
    rows = [row("a", 0), row("b", 1, 300)]  # a takes two steps with its headroom, b's copy 3000 bytes
    assert make_room(rows, 2 * ROW + 2999).aside == (Aside("b", copy=False),)
    assert make_room(rows, 2 * ROW + 3000).aside == (Aside("b", copy=True),)


def test_a_row_that_came_back_keeps_its_place_until_it_made_progress() -> None:
    rows = [row("a", 0), row("b", 1), row("back", 2, owed=True, made=PROGRESS - 1)]
    assert gone(make_room(rows, 2 * ROW)) == ["b"]
    rows[2] = row("back", 2, owed=True, made=PROGRESS)
    assert gone(make_room(rows, 2 * ROW)) == ["back"]


def test_background_makes_way_for_an_interactive_request_where_rows_are_few() -> None:
    rows = [row("i", 0), row("b", 1, background=True), row("c", 2, background=True)]
    coming = row("x", 3).hold
    assert make_way(coming, rows, 4, 10**6) is None
    assert gone(make_way(coming, rows, 3, 10**6)) == ["c"]
    assert gone(make_way(coming, rows, 2, 10**6)) == ["c", "b"]


def test_background_makes_way_where_memory_is_short() -> None:
    rows = [row("i", 0), row("b", 1, background=True), row("c", 2, background=True)]
    coming = row("x", 3).hold
    assert gone(make_way(coming, rows, 16, 3 * 2 * ROW)) == ["c"]
    assert gone(make_way(coming, rows, 16, 2 * 2 * ROW)) == ["c", "b"]


def test_nobody_makes_way_in_vain_nor_interactive_rows_at_all() -> None:
    coming = row("x", 3).hold
    rows = [row("i", 0), row("b", 1, background=True)]
    assert make_way(coming, rows, 16, 2 * 2 * ROW - 1) is None
    assert make_way(coming, rows, 1, 10**6) is None
    assert make_way(coming, [row("i", 0)], 1, 10**6) is None


def test_a_background_row_in_a_turn_of_its_own_makes_no_way_yet() -> None:
    coming = row("x", 3).hold
    kept = row("b", 1, background=True, owed=True, made=PROGRESS - 1)
    assert make_way(coming, [kept], 1, 10**6) is None
    over = row("b", 1, background=True, owed=True, made=PROGRESS)
    assert gone(make_way(coming, [over], 1, 10**6)) == ["b"]


def test_who_makes_way_is_copied_where_there_is_room() -> None:
    coming = row("x", 3).hold
    rows = [row("b", 1, 300, background=True)]
    assert make_way(coming, rows, 1, 2 * ROW + 2999) == Relief(aside=(Aside("b", copy=False),))
    assert make_way(coming, rows, 1, 2 * ROW + 3000) == Relief(aside=(Aside("b", copy=True),))


def test_who_came_first_comes_back_first_interactive_ahead() -> None:
    aside = [AsideView("b", 0.0, 5.0, True), AsideView("late", 2.0, 5.0), AsideView("early", 1.0, 6.0)]
    back = next_back(aside, interactive_waits=True, now=7.0)
    assert back is not None
    assert back.id == "early"
    assert next_back(aside[:1], interactive_waits=False, now=7.0) == aside[0]
    assert next_back([], interactive_waits=False, now=7.0) is None


def test_an_interactive_row_comes_back_before_a_background_one_that_came_earlier() -> None:
    aside = [AsideView("b", 0.0, 5.0, True), AsideView("i", 3.0, 6.0)]
    for waits, now in ((False, 7.0), (True, 5.0 + 2 * ASIDE_S)):
        back = next_back(aside, interactive_waits=waits, now=now)
        assert back is not None
        assert back.id == "i"
    both = [AsideView("late", 2.0, 5.0, True), AsideView("early", 1.0, 6.0, True)]
    assert next_back(both, interactive_waits=False, now=7.0) == both[1]


def test_a_background_row_lets_waiting_interactive_requests_ahead_but_not_for_ever() -> None:
    aside = [AsideView("b", 0.0, 5.0, True)]
    assert next_back(aside, interactive_waits=True, now=5.0 + ASIDE_S - 0.1) is None
    assert next_back(aside, interactive_waits=True, now=5.0 + ASIDE_S) == aside[0]


rows_of = st.lists(
    st.builds(
        lambda since, length, background, owed, made, batch: (
            since,
            length,
            background,
            owed,
            made,
            batch,
        ),
        st.integers(0, 99),
        st.integers(0, 2000),
        st.booleans(),
        st.booleans(),
        st.integers(0, 64),
        st.sampled_from("mn"),
    ),
    max_size=8,
).map(
    lambda drawn: [
        row(str(place), since, length, background=background, owed=owed, made=made, batch=batch)
        for place, (since, length, background, owed, made, batch) in enumerate(drawn)
    ]
)
kept_of = st.builds(Kept, st.integers(0, 20_000), st.integers(0, 20_000))


@settings(deadline=None, max_examples=200, derandomize=True, database=None)
@given(rows_of, st.integers(0, 200_000), kept_of)
def test_what_goes_is_enough_and_no_more(rows: list[RowView], budget: int, kept: Kept) -> None:
    relief = make_room(rows, budget, kept)
    out = set(gone(relief))
    left = [one.hold for one in rows if one.hold.id not in out]
    copies = sum(
        FOOT.bytes(1, one.hold.length) for one in rows if Aside(one.hold.id, copy=True) in relief.aside
    )
    if relief.hopeless:
        assert not out
        [alone] = [one.hold for one in rows if one.hold.id == relief.hopeless]
        assert bytes_of([alone], 1) > budget
        return
    assert left or not rows
    still = kept.snapshots + kept.copies - relief.free.snapshots - relief.free.copies
    assert bytes_of(left, 1) + still + copies <= budget
    if copies:
        assert bytes_of(left, HEADROOM) + still + copies <= budget
    if relief.free.copies:
        assert relief.free.snapshots == kept.snapshots
    for one in rows:
        if one.hold.id in out:  # without this one's going it would not do
            assert bytes_of([*left, one.hold], 1) > budget


@settings(deadline=None, max_examples=200, derandomize=True, database=None)
@given(rows_of, st.integers(0, 200_000), kept_of, st.integers(1, 8), st.integers(0, 2000))
def test_whoever_makes_way_lets_the_other_in(
    rows: list[RowView], budget: int, kept: Kept, max_rows: int, length: int
) -> None:
    coming = row("x", 100, length).hold
    relief = make_way(coming, rows, max_rows, budget, kept)
    if relief is None:
        yielding = [one for one in rows if one.background and not one.safe]
        staying = [one.hold for one in rows if one not in yielding]
        here = [one.hold for one in rows]
        fits_now = isinstance(admit(coming, here, budget, kept), Admit) and len(here) < max_rows
        never = not isinstance(admit(coming, staying, budget), Admit) or len(staying) >= max_rows
        assert fits_now or never
        return
    out = set(gone(relief))
    assert out
    assert all(one.background and not one.safe for one in rows if one.hold.id in out)
    left = [one.hold for one in rows if one.hold.id not in out]
    copied = [one.hold for one in rows if Aside(one.hold.id, copy=True) in relief.aside]
    after = Kept(
        kept.snapshots - relief.free.snapshots,
        kept.copies - relief.free.copies + sum(FOOT.bytes(1, hold.length) for hold in copied),
    )
    assert len(left) < max_rows
    assert admit(coming, left, budget, after) == Admit()


def test_progress_is_asked_of_no_row_that_was_never_owed_anything() -> None:
    assert not row("a", 0, made=0).safe
    with pytest.raises(AttributeError):
        row("a", 0).made = 3  # type: ignore[misc]
