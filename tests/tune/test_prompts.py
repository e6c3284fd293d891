"""The suites that are shipped can be loaded, cut and refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import DataLoss, InvalidArgument
from mtplxd.tune.prompts import list_suites, load_suite


def test_the_four_suites_are_there_and_mixed_is_the_default() -> None:
    assert list_suites() == ["chat", "code", "mixed", "prose"]
    assert load_suite() == load_suite("mixed")


@pytest.mark.parametrize("name", list_suites())
def test_every_suite_has_its_own_prompts(name: str) -> None:
    texts = [prompt.text for prompt in load_suite(name).prompts]
    assert len(texts) >= 16
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
