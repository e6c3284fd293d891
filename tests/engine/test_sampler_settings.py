"""What a sampler's settings mean: greedy from the temperature alone, one rule, and what drafts are drawn with."""

from __future__ import annotations

from typing import Any

import pytest
from mtplxd.engine.request import (
    BLOCK,
    COUPLED,
    DEFAULT_RULE,
    GREEDY,
    TOKEN,
    DraftSampler,
    SamplerSettings,
)
from mtplxd.families.load import LoadedModel
from support.listening import ask, decode


@pytest.mark.parametrize("rule", [TOKEN, BLOCK, COUPLED])
def test_temperature_0_is_greedy_whatever_rule_is_named(rule: str) -> None:
    assert SamplerSettings(temperature=0.0, acceptance=rule).rule == GREEDY
    assert SamplerSettings(temperature=1e-6, acceptance=rule).rule == rule


def test_the_default_rule_has_the_law_of_plain_decoding_without_a_seed() -> None:
    assert SamplerSettings().rule == DEFAULT_RULE
    assert DEFAULT_RULE in (TOKEN, BLOCK)


@pytest.mark.parametrize(
    ("draft", "temperature", "top_k"),
    [
        (DraftSampler(), 0.8, 40),
        (DraftSampler(temperature=1.5), 1.5, 40),
        (DraftSampler(temperature=0.0), 0.0, 40),
        (DraftSampler(top_k=0), 0.8, 0),
        (DraftSampler(top_k=5), 0.8, 5),
        (DraftSampler(temperature=0.3, top_k=1), 0.3, 1),
    ],
)
def test_a_draft_sampler_replaces_only_what_it_names(
    draft: DraftSampler, temperature: float, top_k: int
) -> None:
    sampler = SamplerSettings(0.8, top_p=0.9, top_k=40, min_p=0.1, draft=draft)
    own = sampler.drafting
    assert (own.temperature, own.top_k, own.top_p, own.min_p) == (temperature, top_k, 0.9, 0.1)


def test_a_greedy_target_drafts_greedily_whatever_its_draft_sampler_says() -> None:
    sampler = SamplerSettings(temperature=0.0, draft=DraftSampler(temperature=1.5, top_k=9))
    assert sampler.drafting.greedy


@pytest.mark.parametrize(
    ("given", "penalised"),
    [
        ({}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"repetition_penalty": 0.9}, True),
        ({"presence_penalty": -0.1}, True),
        ({"frequency_penalty": 0.1}, True),
        ({"logit_bias": ((1, 5.0),)}, False),
    ],
    ids=str,
)
def test_only_penalties_need_to_know_what_was_said(given: dict[str, Any], penalised: bool) -> None:
    assert SamplerSettings(**given).penalised == penalised


@pytest.mark.parametrize("rule", [TOKEN, BLOCK, COUPLED])
def test_drafts_are_accepted_at_a_high_temperature(tiny_model: LoadedModel, rule: str) -> None:
    sampler = SamplerSettings(temperature=1.5, seed=3, acceptance=rule)
    request = ask(tiny_model, [5, 6, 7], depth=2, sampler=sampler, max_tokens=60, ignore_eos=True)
    assert decode(request)[1].finished.stats.accepted > 5


@pytest.mark.parametrize("rule", [TOKEN, BLOCK, COUPLED])
def test_a_certain_law_drafts_and_decodes_what_greedy_does(tiny_model: LoadedModel, rule: str) -> None:
    """top_k 1 leaves one token to both, by the chain rather than by the temperature."""
    plain = decode(ask(tiny_model, [5, 6, 7], max_tokens=20, ignore_eos=True))[1].tokens
    sampler = SamplerSettings(temperature=0.7, top_k=1, seed=3, acceptance=rule)
    request = ask(tiny_model, [5, 6, 7], depth=3, sampler=sampler, max_tokens=20, ignore_eos=True)
    assert decode(request)[1].tokens == plain
