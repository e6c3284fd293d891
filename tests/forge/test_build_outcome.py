"""What a build shows of itself and came to, from its records alone."""

from __future__ import annotations

from typing import Any

import pytest
from mtplxd.errors import InvalidArgument, Unavailable
from mtplxd.forge.describing import provenance, public_recipe
from mtplxd.forge.outcome import outcome_of, summarise
from mtplxd.forge.recipe import BuildRecipe, TrainOptions
from mtplxd.forge.state import FileMark, RunState

RECIPE = BuildRecipe(source="/home/ada/models/mine-source", name="mine", train=True,
                     training=TrainOptions(prompts="/home/ada/prompts.jsonl"))  # fmt: skip


def finished(*steps: str, **results: dict[str, Any]) -> RunState:
    """A state in which these steps took two seconds each."""
    state, now = RunState(created=10.0), 10.0
    for step in steps:
        state = state.begin_step(step, step, now)
        state = state.finish_step(step, results.get(step, {}), "/x", {"a": FileMark(1, 2, "ff")}, now + 2)
        now += 3
    return state


@pytest.mark.parametrize(
    ("state", "live", "status", "resumable"),
    [
        (finished("fetch"), "", "interrupted", True),
        (finished("fetch"), "running", "running", False),
        (finished("fetch"), "queued", "queued", False),
        (finished("fetch").fail(Unavailable("gone"), 20.0), "", "failed", True),
        (finished("fetch").fail(InvalidArgument("no layer fits", field="overrides"), 20.0), "", "failed", False),
        (finished("fetch").fail(InvalidArgument("no address"), 20.0), "", "failed", True),
        (finished("fetch").begin_step("measure", "", 20.0).lose_step("measure", "throttled", ("hot",), {}, 21.0), "",
         "done", True),
        (finished("fetch").begin_step("extract", "", 20.0).lose_step("extract", "quality_failed", ("bad",), {}, 21.0),
         "", "done", False),
        (finished("fetch", "seal").win(20.0), "", "done", False),
    ],
    ids=[
        "interrupted", "running", "queued", "failed", "failed for good", "failed for now", "lost", "lost for good",
        "won",
    ],
)  # fmt: skip
def test_a_run_is_listed_by_where_it_stands(state: RunState, live: str, status: str, resumable: bool) -> None:
    found = summarise("r", RECIPE, state, live=live)
    assert (found.status, found.resumable) == (status, resumable)
    assert found.source == "mine-source"


def test_a_run_stands_at_the_last_step_that_was_begun() -> None:
    assert summarise("r", RECIPE, RunState()).step == ""
    assert summarise("r", RECIPE, finished("fetch", "inspect", "convert")).step == "convert"
    assert summarise("r", RECIPE, finished("fetch"), live="running", step="inspect").step == "inspect"


def test_an_outcome_has_what_each_step_found_and_how_long_they_took() -> None:
    state = finished("fetch", "extract", "measure", extract={"tensors": 3}, measure={"verdict": "depth_wins"})
    outcome = outcome_of("r", RECIPE, state.win(30.0))
    assert (outcome.pack, outcome.took_s) == ("mine", 6.0)
    assert outcome.details == {"head": {"tensors": 3}}
    assert outcome.measured == {"verdict": "depth_wins"}
    lost = state.begin_step("verify", "", 30.0).lose_step(
        "verify", "quality_failed", ("they part",), {}, 31.0
    )
    outcome = outcome_of("r", RECIPE, lost)
    assert (outcome.pack, outcome.message, outcome.reasons) == ("", "they part", ("they part",))


def test_what_steps_found_worth_knowing_is_said_in_their_order_and_once() -> None:
    state = finished(
        "inspect", "convert", "extract", "calibrate", "measure",
        inspect={"notes": ["a copy of the body's embedding"]},
        convert={"notes": ["text only: 3 tensors (9 bytes) of what sees or hears are left out"]},
        extract={"notes": ["a copy of the body's embedding", "degraded head: 2 of its matrices are packed, 4 bits"]},
        calibrate={"status": "inconclusive", "message": "inconclusive, kept as declared: concat", "notes": []},
        measure={"notes": ["depth 3 clipped to 1: the head's limit is 1"]},
    )  # fmt: skip
    assert outcome_of("r", RECIPE, state.win(90.0)).notes == (
        "a copy of the body's embedding",
        "text only: 3 tensors (9 bytes) of what sees or hears are left out",
        "degraded head: 2 of its matrices are packed, 4 bits",
        "calibration: inconclusive, kept as declared: concat",
        "depth 3 clipped to 1: the head's limit is 1",
    )
    sure = finished(
        "calibrate", calibrate={"status": "confirmed", "message": "every setting is the better one"}
    )
    assert outcome_of("r", RECIPE, sure.win(90.0)).notes == ()


def test_what_others_read_of_a_recipe_has_no_place_of_this_machine() -> None:
    told = public_recipe(RECIPE)
    assert (told["source"], told["training"]["prompts"]) == ("mine-source", "prompts.jsonl")
    assert "/home/ada" not in str(told)
    assert public_recipe(BuildRecipe(source="org/model", name="mine"))["source"] == "org/model"
    assert public_recipe(BuildRecipe(source="org/model", name="mine"))["training"] is None


def test_provenance_names_the_bytes_that_a_pack_was_made_of() -> None:
    state = finished(
        "fetch", fetch={"repo": "org/model", "revision": "c0ffee", "licence": "mit", "path": "/home/ada"}
    )
    told = provenance("r", state, RECIPE)
    assert (told["source_repo"], told["source_sha"], told["source_licence"]) == ("org/model", "c0ffee", "mit")
    assert told["inputs"] == {"a": "ff"}
    assert told["run"] == "r"
    assert "/home/ada" not in str(told)
