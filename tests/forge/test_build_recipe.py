"""What can be asked for and what cannot, each named; a recipe comes back from its file as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mtplxd.errors import DataLoss, InvalidArgument
from mtplxd.forge.body_plan import BodyPlan
from mtplxd.forge.recipe import BuildRecipe, TrainOptions, read_recipe

ASKED: dict[str, Any] = {"source": "org/model", "name": "mine"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"source": " "}, "source"),
        ({"name": ""}, "name"),
        ({"name": ".hidden"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "../up"}, "name"),
        ({"name": "smollm2-135m"}, "name"),
        ({"body_bits": 7}, "body_bits"),
        ({"body_bits": 0}, "body_bits"),
        ({"group_size": 48}, "group_size"),
        ({"dtype": "fp8"}, "dtype"),
        ({"body_bits": 4, "overrides": {"lm_head": 9}}, "overrides"),
        ({"body_bits": 16, "overrides": {"lm_head": 8}}, "overrides"),
        ({"overrides": {"lm_head": 8}}, "overrides"),
        ({"depths": (0,)}, "depths"),
        ({"depths": (100,)}, "depths"),
        ({"head_bits": 4}, "head_bits"),
        ({"head_bits": 7, "allow_degraded_head": True}, "head_bits"),
        ({"quality_floor": 1.5}, "quality_floor"),
        ({"quality_floor": float("nan")}, "quality_floor"),
        ({"group_size": 32}, "group_size"),
        ({"body_bits": 16, "group_size": 32}, "group_size"),
        ({"train": True, "training": TrainOptions(method="magic")}, "training.method"),
        ({"train": True, "training": TrainOptions(seed=-1)}, "training.seed"),
        ({"train": True, "training": TrainOptions(tokens=1 << 33)}, "training.tokens"),
        ({"train": True, "training": TrainOptions(steps=(1 << 20) + 1)}, "training.steps"),
        ({"training": TrainOptions(steps=7)}, "train"),
    ],
    ids=lambda value: str(value),
)
def test_what_no_build_can_have_is_refused_by_name(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        BuildRecipe(**{**ASKED, **wrong})
    assert caught.value.field == field
    assert caught.value.fix


@pytest.mark.parametrize(
    "asked",
    [
        {"bits": 7},
        {"bits": 4, "group_size": 48},
        {"group_size": 32},
        {"dtype": "fp8"},
        {"bits": 4, "overrides": {"lm_head": 9}},
        {"overrides": {"lm_head": 8}},
    ],
    ids=str,
)
def test_a_conversion_refuses_what_a_recipe_does_and_in_the_same_words(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as of_plan:
        BodyPlan(**asked)
    named = {"body_bits" if name == "bits" else name: value for name, value in asked.items()}
    with pytest.raises(InvalidArgument) as of_recipe:
        BuildRecipe(**{**ASKED, **named})
    assert (str(of_plan.value), of_plan.value.field) == (str(of_recipe.value), of_recipe.value.field)


@pytest.mark.parametrize(
    "right",
    [
        {},
        {"body_bits": 4, "group_size": 32},
        {"body_bits": 16, "dtype": "f32"},
        {"body_bits": 4, "overrides": {"lm_head": 8, "embed_tokens": 16}},
        {"head_bits": 8, "allow_degraded_head": True},
        {"train": True, "training": TrainOptions("full", "/home/ada/prompts.jsonl", 9, 8, 7), "quick": True},
        {"depths": (1, 2, 99), "quality_floor": 0.0, "on_battery": True},
    ],
    ids=str,
)
def test_a_recipe_comes_back_from_its_file_as_it_was(right: dict[str, Any]) -> None:
    recipe = BuildRecipe(**{**ASKED, **right})
    assert read_recipe(json.loads(json.dumps(recipe.document()))) == recipe


def test_a_recipe_of_a_later_version_keeps_what_is_known() -> None:
    recipe = BuildRecipe(**ASKED)
    assert read_recipe({**recipe.document(), "colour": "red"}) == recipe


@pytest.mark.parametrize(
    "damaged", [{}, {"source": "a"}, {**ASKED, "training": {"speed": 1}}, {**ASKED, "depths": 3}]
)
def test_a_damaged_recipe_is_told_to_be_one(damaged: dict[str, Any]) -> None:
    with pytest.raises(DataLoss, match="damaged recipe"):
        read_recipe(damaged)
