"""What a family's record says of its head cannot be otherwise unnoticed: each switch is pinned, and each mutant of a
record computes something else than the equations, or drafts worse than the trained checkpoint states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mtplxd.families import heads
from mtplxd.families.heads.row import SWITCHES, HeadSettings
from support import zoo
from support.families import write_checkpoint
from support.head_references import ALLOWED, FAMILIES, draw, reference_of
from support.head_rig import draft_logits, open_head

RECORDS = {row.name: row.settings for row in heads.FAMILIES}
SETTINGS = {
    "ernie4_5_moe": HeadSettings(),
    "longcat_flash": HeadSettings(),
    "mimo": HeadSettings(tap="pre", recursion="pre", concat="hidden_first"),
    "nemotron_h": HeadSettings(),
    "qwen3_5": HeadSettings(norm_convention="decide"),
    "qwen3_5_moe": HeadSettings(norm_convention="decide"),
    "qwen3_next": HeadSettings(norm_convention="decide"),
}
WITHOUT_EFFECT = {("ernie4_5_moe", "recursion"), ("mimo_v2_flash", "recursion")}
"""A head without an output norm, and one whose every layer takes the target's hidden state."""


def other_value(settings: HeadSettings, switch: str) -> str:
    """What a switch is not, once decided: zero-centred norms were decided where the record leaves it open."""
    one, other = SWITCHES[switch]
    return one if getattr(settings, switch) in (other, "decide") else other


def mutate(monkeypatch: pytest.MonkeyPatch, name: str, switch: str) -> str:
    """Turns one switch of a family's record; gives its new value."""
    value = other_value(RECORDS[name], switch)
    rows = [
        replace(row, settings=replace(row.settings, **{switch: value})) if row.name == name else row
        for row in heads.FAMILIES
    ]
    monkeypatch.setattr(heads, "FAMILIES", tuple(rows))
    return value


@pytest.mark.parametrize(("name", "settings"), SETTINGS.items())
def test_the_record_of_a_family_says_this(name: str, settings: HeadSettings) -> None:
    assert RECORDS[name] == settings


@pytest.mark.parametrize("switch", ["concat", "recursion", "norm_convention"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_mutant_record_departs_from_the_equations(
    name: str, switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path, name, config=FAMILIES[name][1], seed=3)
    tokens, hidden, drafts = draw(right := open_head(folder), drafts=2)
    wanted = reference_of(name, right).draft(tokens, hidden, drafts)
    value = mutate(monkeypatch, name, switch)
    mutant = open_head(folder).head
    assert getattr(mutant.settings, switch) == value
    apart = np.abs(draft_logits(mutant, tokens, hidden, drafts, [len(tokens)]) - wanted).max()
    if (name, switch) in WITHOUT_EFFECT:
        assert apart < ALLOWED
    else:
        assert apart > 100 * ALLOWED


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("name", zoo.NAMES)
def test_a_mutant_record_drafts_worse_than_the_trained_checkpoint_states(
    name: str, switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [prompt["tokens"] for prompt in zoo.expected_of(name)["prompts"][:2]]
    stated = zoo.expected_of(name)["per_prompt"][:2]
    rounds = sum(one["rounds"] for one in stated)
    mutate(monkeypatch, name, switch)
    tally = zoo.measure(zoo.open_zoo(name, tmp_path), prompts)
    apart = [
        abs(found - sum(one["accepted"][k] for one in stated) / rounds)
        for k, found in enumerate(tally.acceptance)
    ]
    assert max(apart) > zoo.TOLERANCE
