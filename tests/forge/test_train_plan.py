"""What a user asks of a training is checked, and what is left open is decided from sizes alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mtplxd.errors import InvalidArgument
from mtplxd.forge.sizing import (
    LOGITS_A_STEP,
    QUICK_NEW,
    QUICK_TUNING,
    WHOLE,
    WHOLE_NEW,
    WHOLE_TUNING,
    HeadFacts,
    choose_method,
    settle_new,
    settle_sizes,
    settle_tuning,
)
from mtplxd.forge.train_plan import TrainPlan

SMALL = HeadFacts(parameters=230_000, packed=False, draft_vocab=320, depths=99, context=512)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("method", "best"),
        ("tokens", 0),
        ("tokens", -5),
        ("steps", 0),
        ("steps", 1.5),
        ("steps", True),
        ("depths", 9),
        ("depths", 0),
        ("rank", 0),
        ("seed", -1),
        ("seed", 1 << 40),
    ],
)
def test_a_value_there_is_none_of_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        TrainPlan(**{name: value})
    assert refused.value.field == name
    assert str(value) in str(refused.value)


def test_a_plan_is_written_down_without_a_path() -> None:
    plan = TrainPlan(prompts=Path("/home/somebody/prompts.txt"))
    assert plan.document()["prompts"] == "prompts.txt"
    assert "somebody" not in str(plan.document())


@pytest.mark.parametrize(("quick", "sizes"), [(True, QUICK_TUNING), (False, WHOLE_TUNING)])
def test_what_is_left_open_is_settled_and_what_is_said_stays(quick: bool, sizes: Any) -> None:
    assert settle_tuning(TrainPlan(quick=quick), SMALL).sizes == sizes
    said = settle_tuning(TrainPlan(quick=quick, tokens=7000, steps=5, seed=3), SMALL)
    assert (said.sizes.tokens, said.schedule.steps, said.seed, said.schedule.seed) == (7000, 5, 3, 3)


def test_a_small_head_is_trained_as_a_whole_and_a_large_or_packed_one_by_additions() -> None:
    assert choose_method("auto", SMALL) == "full"
    assert choose_method("auto", replace(SMALL, parameters=WHOLE + 1)) == "lora"
    assert choose_method("auto", replace(SMALL, packed=True)) == "lora"
    for asked in ("full", "lora"):
        assert choose_method(asked, replace(SMALL, parameters=WHOLE + 1)) == asked


def test_it_goes_no_deeper_than_the_head() -> None:
    for depths, wanted in ((1, (1.0,)), (2, (1.0, 0.5)), (99, (1.0, 0.5, 0.25))):
        schedule = settle_tuning(TrainPlan(), replace(SMALL, depths=depths)).schedule
        assert schedule.depth_weights == wanted


def test_a_large_vocabulary_takes_fewer_places_an_update() -> None:
    wide = settle_tuning(TrainPlan(), replace(SMALL, draft_vocab=1 << 17))
    assert wide.places * (1 << 17) <= LOGITS_A_STEP
    assert settle_tuning(TrainPlan(), SMALL).places > wide.places


def test_a_short_context_and_rows_that_take_turns() -> None:
    sizes = settle_sizes(TrainPlan(), QUICK_NEW, WHOLE_NEW, context=100, apart="they differ")
    assert (sizes.length, sizes.rows) == (100, 1)
    plan = settle_tuning(TrainPlan(), replace(SMALL, context=60)).plan
    assert plan.length == 60
    assert plan.question <= 20


def test_a_new_head_is_fed_from_a_third_two_thirds_and_all_of_the_layers() -> None:
    def settle(layers: int, mlp: Any, vocab: int = 50_000) -> Any:
        return settle_new(TrainPlan(), WHOLE_NEW, layers=layers, hidden=576, mlp=mlp, vocab=vocab)

    assert settle(30, 1536).taps == (10, 20, 30)
    assert settle(2, 1536).taps == (1, 2)
    assert settle(1, 1536).taps == (1,)
    assert [settle(4, mlp).mlp_width for mlp in (1536, 10_000, None, [1, 2])] == [1536, 2304, 2304, 2304]
    assert [settle(4, 8, vocab).draft_vocab for vocab in (320, 50_000)] == [320, 6144]


def test_settings_read_back_as_they_are_written() -> None:
    import json

    document = settle_tuning(TrainPlan(), SMALL).document()
    assert json.loads(json.dumps(document)) == document
