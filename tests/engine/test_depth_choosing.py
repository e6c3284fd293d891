"""What the depth controller may answer: rows with depths of their own, texts near their end, forms of forwards."""

from __future__ import annotations

import json
import random

import pytest
from mtplxd.engine.depth import DepthController, DraftRoom, RoundSeen, RowSeen
from support.depth_sim import CHAT, CODE, CURVES, DEAD, DEPTH_MAX, Machine, play


def learnt(
    chances: tuple[float, ...], rows: int = 1, rounds: int = 200, curve: str = "flat"
) -> DepthController:
    controller = DepthController(DEPTH_MAX)
    machine = Machine(CURVES[curve], random.Random(1))
    play(controller, lambda *_: chances, machine, rows, rounds)
    return controller


def seen(width: int, accepted: int, seconds: float | None, rows: int = 1) -> RoundSeen:
    return RoundSeen(tuple(RowSeen(str(row), width, width, accepted) for row in range(rows)), seconds)


@pytest.mark.parametrize(("start", "first"), [(1, 1), (3, 3), (0, 0), (12, 8)])
def test_a_pack_nobody_knows_starts_where_it_is_told_to(start: int, first: int) -> None:
    assert DepthController(DEPTH_MAX, start=start).choose([DraftRoom("a", DEPTH_MAX)]) == [first]


def test_a_model_without_a_head_drafts_nothing() -> None:
    controller = DepthController(0)
    assert controller.choose([DraftRoom("a", 5), DraftRoom("b", 0, 0)]) == [0, 0]
    controller.observe(seen(0, 0, 0.1))
    assert controller.choose([]) == []


def test_rows_with_a_depth_of_their_own_have_it_whatever_pays() -> None:
    controller = learnt(DEAD)
    rows = [DraftRoom("a", 8, 3), DraftRoom("b", 8, 0), DraftRoom("c", 1, 5)]
    assert controller.choose(rows) == [3, 0, 1]


def test_beside_a_wide_row_the_others_draft_as_wide() -> None:
    """The forwards are as wide as the widest row: a narrower one would save nothing."""
    controller = learnt(CHAT, rows=2)
    narrow = controller.choose([DraftRoom("0", 8), DraftRoom("1", 8)])
    assert max(narrow) < 7
    assert controller.choose([DraftRoom("0", 8), DraftRoom("x", 8, 7)]) == [7, 7]


def test_rows_near_their_end_draft_no_more_than_can_be_kept() -> None:
    controller = learnt(CODE, rows=2)
    wide, near = controller.choose([DraftRoom("0", 8), DraftRoom("1", 2)])
    assert wide > 2
    assert near == 2
    for most in range(3):
        assert max(controller.choose([DraftRoom("0", most), DraftRoom("1", most)])) <= most


def test_the_end_of_a_text_changes_no_mind() -> None:
    controller = learnt(CODE)
    before = controller.choose([DraftRoom("0", 8)])
    for most in (3, 2, 1, 0):
        depths = controller.choose([DraftRoom("0", most)])
        controller.observe(seen(depths[0], 0, 0.02))
    assert controller.choose([DraftRoom("new", 8)])[0] >= before[0] - 1


def test_every_form_of_forwards_has_costs_of_its_own() -> None:
    """Where all forwards are equally wide, depth costs the drafts alone."""
    controller = DepthController(DEPTH_MAX)
    steep, machine = CURVES["steep"], random.Random(0)
    for at in range(400):
        form = ("", "fixed")[at // 20 % 2]
        [depth] = controller.choose([DraftRoom("a", 8)], form)
        accepted = 0
        while accepted < depth and machine.random() < CHAT[accepted]:
            accepted += 1
        seconds = steep(1, depth) if form == "" else 0.2 + 0.001 * depth
        controller.observe(RoundSeen((RowSeen("a", depth, depth, accepted),), seconds, form))
    usual = {
        form: [controller.choose([DraftRoom("a", 8)], form)[0] for _ in range(3)] for form in ("", "fixed")
    }
    assert max(usual[""]) <= 1
    assert max(usual["fixed"]) >= 4


def test_rounds_without_a_time_teach_acceptance_alone() -> None:
    controller = DepthController(DEPTH_MAX)
    for _ in range(50):
        controller.observe(seen(1, 1, None))
    assert controller.state()["seconds"][""] == []
    assert controller.state()["acceptance"]["passed"][0] > 40


def test_what_was_not_decided_counts_neither_way() -> None:
    controller = DepthController(DEPTH_MAX)
    controller.observe(RoundSeen((RowSeen("a", 4, 1, 4),), 0.1))
    assert controller.state()["acceptance"] == {"reached": [1.0], "passed": [1.0]}


def test_an_empty_round_teaches_nothing() -> None:
    controller = DepthController(DEPTH_MAX)
    controller.observe(RoundSeen((), 0.1))
    assert controller.rounds == 0


def test_the_state_is_plain_json_and_the_next_controller_starts_with_it() -> None:
    state = json.loads(json.dumps(learnt(CODE).state()))
    heir = DepthController(DEPTH_MAX, state)
    assert heir.choose([DraftRoom("new", 8)])[0] >= 5
    assert heir.state()["acceptance"] == state["acceptance"]
    gone = DepthController(DEPTH_MAX, json.loads(json.dumps(learnt(DEAD, curve="measured").state())))
    assert gone.choose([DraftRoom("new", 8)]) == [0]


def test_the_latest_state_is_there_for_other_threads_and_never_changes() -> None:
    controller = learnt(CODE)
    latest = controller.latest
    kept = json.dumps(latest)
    play(controller, lambda *_: DEAD, Machine(CURVES["flat"], random.Random(2)), 1, 100)
    assert json.dumps(latest) == kept
    assert controller.latest != latest


def test_a_state_that_comes_late_takes_nothing_from_what_was_learnt_since() -> None:
    late, early = learnt(CODE, rounds=30).state(), learnt(DEAD, rounds=300)
    figures = early.state()["seconds"][""]
    early.adopt(late)
    assert [figure for figure in early.state()["seconds"][""] if figure in figures] == figures
    machine = Machine(CURVES["flat"], random.Random(2))
    assert play(early, lambda *_: DEAD, machine, 1, 20).widths.count(0) >= 17


GOOD = {"version": 1, "acceptance": {"reached": [4.0], "passed": [2.0]}, "seconds": {"": [[1, 0, 0.1]]}}


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2},
        {"acceptance": None},
        {"acceptance": {"reached": [1.0], "passed": [2.0]}},
        {"acceptance": {"reached": [1.0, 1.0], "passed": [1.0]}},
        {"acceptance": {"reached": [True], "passed": [0]}},
        {"acceptance": {"reached": [float("nan")], "passed": [0.0]}},
        {"acceptance": {"reached": "many", "passed": []}},
        {"seconds": []},
        {"seconds": {"": [[1, 0]]}},
        {"seconds": {"": [[1, 0, -1.0]]}},
        {"seconds": {"": [[0, 0, 1.0]]}},
        {"seconds": {"": [[1, 0.5, 1.0]]}},
        {"seconds": {"": [[1, 0, float("inf")]]}},
        {"seconds": {"": [[1, 0, None]]}},
        {"seconds": {"": 7}},
    ],
)
def test_a_damaged_state_is_refused_and_nothing_of_it_taken(damage: dict[str, object]) -> None:
    controller = learnt(CHAT, rounds=50)
    before = controller.state()
    with pytest.raises(ValueError, match=r"\w"):
        controller.adopt({**GOOD, **damage})
    assert controller.state() == before
    DepthController(DEPTH_MAX, GOOD)
