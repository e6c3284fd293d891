"""On trained weights each switch of a head is worth what the checkpoint's own file states; the text never changes.

A few prompts are run here; all of them, with every switch, are in `tests/bench/results/zoo.json`, made by
`tests/bench/zoo.py`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support import zoo

PROMPTS = 4
RECORDED = json.loads((Path(__file__).parents[1] / "bench/results/zoo.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


@cache
def measured(name: str, flipped: str | None, folder: Path) -> zoo.Tally:
    prompts = [prompt["tokens"] for prompt in zoo.expected_of(name)["prompts"][:PROMPTS]]
    return zoo.measure(zoo.open_zoo(name, folder, flipped), prompts)


def tallied(rounds: list[int], accepted: list[list[int]]) -> list[float]:
    return [sum(one[k] for one in accepted) / sum(rounds) for k in range(zoo.DEPTH)]


def assert_near(found: list[float], wanted: list[float]) -> None:
    assert max(abs(one - other) for one, other in zip(found, wanted, strict=True)) <= zoo.TOLERANCE


@pytest.mark.parametrize("name", zoo.NAMES)
def test_the_settings_it_was_trained_with_are_its_familys_own(name: str, folder: Path) -> None:
    model = zoo.open_zoo(name, folder / "settings")
    settings: Any = model.head_settings
    assert {switch: getattr(settings, switch) for switch in zoo.STATED} == zoo.right_settings(name)


@pytest.mark.parametrize("name", zoo.NAMES)
def test_its_drafts_are_accepted_as_often_as_stated(name: str, folder: Path) -> None:
    stated = zoo.expected_of(name)["per_prompt"][:PROMPTS]
    tally = measured(name, None, folder)
    assert_near(
        tally.acceptance, tallied([one["rounds"] for one in stated], [one["accepted"] for one in stated])
    )


@pytest.mark.parametrize("name", zoo.NAMES)
def test_its_stated_greedy_tokens_are_reproduced_with_the_head_and_without(name: str, folder: Path) -> None:
    expected, tally = zoo.expected_of(name), measured(name, None, folder)
    plain = zoo.open_zoo(name, folder / "plain", plain=True)
    for one in expected["greedy"][:2]:
        assert zoo.decode_plainly(plain, expected["prompts"][one["prompt"]]["tokens"]) == one["tokens"]
    near = [one for one in expected["greedy"] if one["prompt"] < PROMPTS]
    assert [tally.texts[one["prompt"]] for one in near] == [one["tokens"] for one in near] != []


@pytest.mark.parametrize("flipped", zoo.STATED)
@pytest.mark.parametrize("name", zoo.NAMES)
def test_a_switch_the_other_way_costs_acceptance_and_changes_no_text(
    name: str, flipped: str, folder: Path
) -> None:
    right, wrong = measured(name, None, folder), measured(name, flipped, folder)
    assert wrong.tokens_per_round < right.tokens_per_round - 0.1
    assert wrong.texts == right.texts
    sample = RECORDED["samples"][f"{name} {flipped}"]
    assert_near(wrong.acceptance, tallied(sample["rounds"][:PROMPTS], sample["accepted"][:PROMPTS]))


@pytest.mark.parametrize("flipped", [None, *zoo.STATED])
@pytest.mark.parametrize("name", zoo.NAMES)
def test_the_whole_protocol_was_recorded_within_what_is_stated(name: str, flipped: str | None) -> None:
    expected, sample = zoo.expected_of(name), RECORDED["samples"][f"{name} {flipped or 'right'}"]
    stated = expected["correct"] if flipped is None else expected["wrong"][zoo.STATED[flipped]]
    assert len(sample["rounds"]) == expected["protocol"]["prompts"] == sample["as_plain"]
    assert_near(tallied(sample["rounds"], sample["accepted"]), stated["acceptance"])
