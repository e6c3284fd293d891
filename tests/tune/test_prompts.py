"""The suites that are shipped can be loaded, cut and refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mtplxd.errors import DataLoss, InvalidArgument
from mtplxd.tune.prompts import LONG_SUITE, fill_prompts, list_suites, load_suite, render_prompts


def test_the_five_suites_are_there_and_mixed_is_the_default() -> None:
    assert list_suites() == ["chat", "code", "long-code", "mixed", "prose"]
    assert load_suite() == load_suite("mixed")


@pytest.mark.parametrize("name", list_suites())
def test_every_suite_has_its_own_prompts(name: str) -> None:
    texts = [prompt.text for prompt in load_suite(name).prompts]
    assert len(texts) >= (8 if name == LONG_SUITE else 16)
    assert len(set(texts)) == len(texts)
    assert all(texts)


def test_fewer_prompts_are_the_first_ones_with_the_same_seeds() -> None:
    assert load_suite("chat", 3, 7).prompts == load_suite("chat", 0, 7).prompts[:3]
    assert [prompt.seed for prompt in load_suite("chat", 3, 2**64 - 1).prompts] == [2**64 - 1, 0, 1]


@pytest.mark.parametrize(("name", "count", "field"), [("chatt", 1, "suite"), ("chat", 1000, "prompts")])
def test_what_there_is_not_is_refused_by_name(name: str, count: int, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        load_suite(name, count)
    assert refused.value.field == field


@pytest.mark.parametrize("text", ["{", '{"prompts": [{"messages": []}]}', "[]"])
def test_a_damaged_suite_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(DataLoss, match=r"damaged bench suite \(own.json\)"):
        load_suite("own", folder=tmp_path)


class Words:
    """A tokenizer of words and what is between them, denser than any real one is on code."""

    def render_chat(self, messages: list[dict[str, str]]) -> list[int]:
        return list(range(sum(len(re.findall(r"\w+|\s+|[^\w\s]+", one["content"])) for one in messages)))


def test_prompts_of_long_code_are_long_by_any_tokenizer() -> None:
    """A token of code holds some four characters; five in the densest vocabulary there is."""
    assert all(len(prompt.text) >= 2048 * 5 for prompt in load_suite(LONG_SUITE).prompts)


@pytest.mark.parametrize("context", [200, 3000, 30_000])
def test_prompts_are_filled_up_to_what_is_asked_for_and_hardly_beyond(context: int) -> None:
    filled = fill_prompts(load_suite("chat", 8), Words(), context)  # type: ignore[arg-type]
    assert all(context <= len(tokens) <= 1.15 * context + 64 for tokens in filled)


def test_prompts_that_are_long_enough_stay_as_they_are() -> None:
    suite = load_suite("chat", 8)
    for context in (0, 3):
        assert fill_prompts(suite, Words(), context) == render_prompts(suite, Words())  # type: ignore[arg-type]
