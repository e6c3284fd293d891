"""Runs on disk: there as a whole or not at all, found by id or name, their state read back or refused."""

from __future__ import annotations

import json

import pytest
from mtplxd.errors import DataLoss, NotFound, Unavailable
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.runs import create_run, find_run, list_runs, remove_run, sweep
from mtplxd.forge.state import BEGUN, FAILED, OVER, FileMark, RunState
from mtplxd.paths import Home

NOW = 1.8e9


def recipe(name: str = "mine") -> BuildRecipe:
    return BuildRecipe(source="org/model", name=name)


def test_a_run_has_what_was_asked_for_and_no_step(home: Home) -> None:
    run = create_run(home, recipe(), NOW, "0a1b2c")
    assert run.id == "build-20270115-080000-0a1b2c"
    assert run.recipe() == recipe()
    assert run.state() == RunState(created=NOW, updated=NOW)
    assert [found.id for found in list_runs(home)] == [run.id]


def test_a_run_is_found_by_its_id_or_as_the_latest_of_its_name(home: Home) -> None:
    first, other, last = (
        create_run(home, recipe(name), NOW + at, f"{at:06x}")
        for at, name in enumerate(("mine", "other", "mine"))
    )
    assert find_run(home, first.id) == first
    assert find_run(home, "mine") == last
    assert find_run(home, "other") == other
    with pytest.raises(NotFound, match=f"the latest is {last.id}"):
        find_run(home, "nobody")


def test_runs_of_one_second_are_listed_as_they_were_made(home: Home) -> None:
    made = [
        create_run(home, recipe("mine"), NOW + at / 10, token).id
        for at, token in enumerate(["f00000", "a00000", "c00000"])
    ]
    assert [run.id for run in list_runs(home)] == made
    assert find_run(home, "mine").id == made[-1]


def test_other_folders_are_no_builds(home: Home) -> None:
    for name in ("train-smollm2-135m", ".new-build-20270115-080000-0a1b2c", "build-of-mine"):
        (home.runs / name).mkdir()
    (home.runs / "decode-smollm2-135m.json").write_text("{}")
    assert list(list_runs(home)) == []


def test_a_removed_run_leaves_nothing_and_a_kill_leaves_nothing_for_long(home: Home) -> None:
    run = create_run(home, recipe(), NOW, "0a1b2c")
    remove_run(home, run)
    assert list(home.runs.iterdir()) == []
    for left in (".new-build-1", ".trash-build-1"):
        (home.runs / left).mkdir()
    (home.runs / ".new-mine").mkdir()
    sweep(home)
    assert [path.name for path in home.runs.iterdir()] == [".new-mine"]


def test_a_state_comes_back_as_it_was(home: Home) -> None:
    run = create_run(home, recipe(), NOW, "0a1b2c")
    state = run.state().begin(NOW + 1).begin_step("fetch", "d1", NOW + 1)
    state = state.finish_step("fetch", {"bytes": 3}, "/src", {"a": FileMark(3, 4, "ff")}, NOW + 2)
    state = state.begin_step("inspect", "d2", NOW + 3)
    lost = state.lose_step("inspect", "no_mtp_head", ("none",), {"head": None}, NOW + 4)
    for one in (state, lost, state.fail(Unavailable("gone", "x", "wait"), NOW + 5), lost.win(NOW + 6)):
        run.write(one)
        assert run.state() == one


def test_what_ended_a_run_is_forgotten_when_it_is_taken_up_again() -> None:
    begun = RunState().begin_step("fetch", "d", NOW)
    failed = begun.fail(Unavailable("gone", "x", "wait"), NOW)
    assert (failed.status, failed.error["code"], failed.error["message"]) == (
        FAILED,
        "UNAVAILABLE",
        "gone (x): wait",
    )
    lost = begun.lose_step("fetch", "unsupported_source", ("bin",), {}, NOW)
    assert (lost.status, lost.won) == (OVER, False)
    for ended in (failed, lost):
        again = ended.begin(NOW + 1)
        assert (again.status, again.verdict, again.reasons, again.error) == (BEGUN, "", (), {})
        assert again.begin_step("fetch", "d", NOW).steps["fetch"].begun == 2


def test_only_a_win_is_one() -> None:
    assert RunState().win(NOW).won
    assert not RunState(status=BEGUN, verdict="depth_wins").won
    assert not RunState(status=OVER, verdict="throttled").won


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "steps": []}']
)
def test_a_damaged_state_is_told_to_be_one(home: Home, content: str) -> None:
    run = create_run(home, recipe(), NOW, "0a1b2c")
    run.state_file.write_text(content)
    with pytest.raises(DataLoss, match="state"):
        run.state()


def test_a_state_of_a_later_build_is_read_as_far_as_it_is_known(home: Home) -> None:
    run = create_run(home, recipe(), NOW, "0a1b2c")
    run.write(run.state().begin_step("fetch", "d", NOW))
    document = json.loads(run.state_file.read_text())
    document["colour"], document["steps"]["fetch"]["colour"] = "red", "red"
    run.state_file.write_text(json.dumps(document))
    assert run.state().steps["fetch"].inputs == "d"
