"""Speculative decoding has plain decoding's law: every outcome of the real round is enumerated on a table model.

A sample that is quick; `make proof-engine` takes every mix at every depth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mtplxd.engine import judging, sampling
from mtplxd.engine import round as rounds
from mtplxd.engine.request import BLOCK, TOKEN, SamplerSettings
from mtplxd.platform.mlx import mx
from support.enumeration import Enumeration, Problem
from support.exact_float64 import use_exact_exponentials
from support.proof_cases import (
    ALL_FILTERS,
    BOUND_FLOAT32,
    BOUND_FLOAT64,
    COMBINATIONS,
    EVERYTHING,
    FILTERS,
    GRAMMAR,
    HORIZON,
    MIXES,
    PROMPT,
    REDUCED,
    distances,
    fixed,
    plain_law,
    under_rules,
    varying,
)
from support.reference_laws import Text, total_variation
from support.table_model import TableHead, TableTarget

MIX, _ = MIXES["everything"]
OFF = [
    {"temperature": 1.0},
    {"top_k": 0},
    {"top_p": 1.0},
    {"min_p": 0.0},
    {"repetition_penalty": 1.0},
    {"presence_penalty": 0.0},
    {"frequency_penalty": 0.0},
    {"logit_bias": ()},
]


@pytest.fixture(autouse=True)
def _exact_exponentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_exponentials(monkeypatch)


@pytest.mark.parametrize("off", OFF, ids=str)
def test_every_setting_of_the_mix_matters(off: dict[str, float]) -> None:
    problem = Problem(PROMPT, MIX, fixed(1), GRAMMAR)
    without = replace(problem, sampler=replace(MIX, **off))
    laws = [plain_law(TableTarget(), given, 4) for given in (problem, without)]
    assert total_variation(*laws) > 1e-3


def test_the_grammar_of_the_mix_matters() -> None:
    problem = Problem(PROMPT, MIX, fixed(1), GRAMMAR)
    laws = [plain_law(TableTarget(), given, 4) for given in (problem, replace(problem, grammar=None))]
    assert total_variation(*laws) > 1e-3


@pytest.mark.parametrize(
    ("depth", "vocab", "horizon"),
    [(1, None, 4), (2, REDUCED, HORIZON), (3, None, 4), (4, REDUCED, HORIZON - 1)],
)
def test_the_law_of_a_text_under_all_filters_is_plain_decodings(
    depth: int, vocab: Text | None, horizon: int
) -> None:
    """At depth 4 with five drafts to choose from, six tokens are left to the full proof."""
    target = TableTarget(dtype=mx.float64)
    model = Enumeration(target, TableHead(target, vocab, spread=2.2), horizon)
    assert max(distances(model, under_rules(Problem(PROMPT, ALL_FILTERS, fixed(depth))))) <= BOUND_FLOAT64


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_everything_at_once_keeps_the_law_of_six_tokens(depth: int) -> None:
    target = TableTarget(dtype=mx.float64)
    model = Enumeration(target, TableHead(target, REDUCED, spread=2.2), HORIZON)
    assert max(distances(model, under_rules(Problem(PROMPT, MIX, fixed(depth), GRAMMAR)))) <= BOUND_FLOAT64


@pytest.mark.parametrize("name", [name for name in MIXES if name not in ("all", "everything", "temperature")])
def test_each_mix_of_settings_keeps_the_law(name: str) -> None:
    target = TableTarget(dtype=mx.float64, seed=3)
    sampler, grammar = MIXES[name]
    model = Enumeration(target, TableHead(target, REDUCED, seed=4), HORIZON - 1)
    assert max(distances(model, under_rules(Problem((4,), sampler, fixed(2), grammar)))) <= BOUND_FLOAT64


@pytest.mark.parametrize(
    "names", [list(COMBINATIONS)[start::8] for start in range(8)], ids=lambda names: names[0]
)
def test_every_combination_of_settings_keeps_the_law(names: list[str]) -> None:
    target = TableTarget(dtype=mx.float64, seed=15)
    model = Enumeration(target, TableHead(target, REDUCED, seed=16), horizon=3)
    for name in names:
        sampler, grammar = COMBINATIONS[name]
        problems = under_rules(Problem(PROMPT, sampler, fixed(2), grammar))
        assert max(distances(model, problems)) <= BOUND_FLOAT64, name


def test_temperature_alone_keeps_the_law() -> None:
    target = TableTarget(dtype=mx.float64, seed=5)
    model = Enumeration(target, TableHead(target, seed=6), horizon=3, prune=False)
    problem = Problem((0, 4), SamplerSettings(temperature=1.5), fixed(2))
    assert max(distances(model, under_rules(problem))) <= BOUND_FLOAT64


def test_without_any_filter_penalties_bias_and_mask_keep_the_law() -> None:
    target = TableTarget(dtype=mx.float64, seed=5)
    model = Enumeration(target, TableHead(target, REDUCED, seed=6), horizon=3)
    problem = Problem((0, 4), SamplerSettings(temperature=1.5, **EVERYTHING), fixed(2), GRAMMAR)
    assert max(distances(model, under_rules(problem))) <= BOUND_FLOAT64


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_draft_lengths_that_depend_on_the_text_keep_the_law(depth: int) -> None:
    target = TableTarget(dtype=mx.float64, seed=7)
    model = Enumeration(target, TableHead(target, REDUCED, seed=8), HORIZON)
    problem = Problem(PROMPT, ALL_FILTERS, varying(target, depth))
    assert max(distances(model, under_rules(problem))) <= BOUND_FLOAT64


@pytest.mark.parametrize(("mix", "depth"), [("all", 2), ("everything", 3), ("all", 4)])
def test_draft_lengths_that_depend_on_what_was_drafted_keep_the_law(depth: int, mix: str) -> None:
    target = TableTarget(dtype=mx.float64, seed=9)
    model = Enumeration(target, TableHead(target, REDUCED, seed=10, gaps=0.3), HORIZON - 1)
    sampler, grammar = MIXES[mix]
    assert (
        max(distances(model, under_rules(Problem(PROMPT, sampler, fixed(depth), grammar)))) <= BOUND_FLOAT64
    )


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_drafts_that_do_not_keep_to_the_grammar_cost_no_exactness(depth: int) -> None:
    target = TableTarget(dtype=mx.float64, seed=17)
    model = Enumeration(target, TableHead(target, REDUCED, seed=18), HORIZON - 1, mask_drafts=False)
    assert max(distances(model, under_rules(Problem(PROMPT, MIX, fixed(depth), GRAMMAR)))) <= BOUND_FLOAT64


def test_a_draft_vocabulary_the_grammar_has_nothing_of_costs_no_exactness() -> None:
    target = TableTarget(dtype=mx.float64, seed=17)
    model = Enumeration(target, TableHead(target, (3,), seed=18), HORIZON - 1)
    assert GRAMMAR.moves[-1].keys().isdisjoint({3})
    assert max(distances(model, under_rules(Problem(PROMPT, MIX, fixed(3), GRAMMAR)))) <= BOUND_FLOAT64


@pytest.mark.parametrize("shape", [{}, EVERYTHING], ids=["top_p", "top_p and the rest"])
def test_rounds_that_must_rank_all_keep_the_law_and_drafts_from_too_few_candidates_too(
    shape: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "CANDIDATES", 2)
    ranked_all = []

    def judge(*given: Any, full: bool) -> Any:
        ranked_all.append(full)
        return judging.judge(*given, full=full)

    monkeypatch.setattr(rounds, "judge", judge)
    target = TableTarget(dtype=mx.float64, seed=19)
    model = Enumeration(target, TableHead(target, REDUCED, seed=20), horizon=3, prune=False)
    sampler = SamplerSettings(temperature=1.4, top_p=0.8, **shape)  # type: ignore[arg-type]
    assert max(distances(model, under_rules(Problem(PROMPT, sampler, fixed(2), GRAMMAR)))) <= BOUND_FLOAT64
    assert any(ranked_all)


@pytest.mark.parametrize("mix", ["all", "everything"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_float32_keeps_the_law_within_its_own_precision(depth: int, mix: str) -> None:
    target = TableTarget(dtype=mx.float32)
    model = Enumeration(target, TableHead(target, REDUCED, spread=2.2), HORIZON - 1)
    sampler, grammar = MIXES[mix]
    assert (
        max(distances(model, under_rules(Problem(PROMPT, sampler, fixed(depth), grammar)))) <= BOUND_FLOAT32
    )


def test_rows_of_other_lengths_and_depths_in_one_batch_keep_their_laws() -> None:
    target = TableTarget(dtype=mx.float64, seed=9)
    model = Enumeration(target, TableHead(target, REDUCED, seed=10), horizon=5)
    block = replace(ALL_FILTERS, acceptance=BLOCK)
    problems = [
        Problem((2,), ALL_FILTERS, fixed(1)),
        Problem((0, 1, 2, 3, 4, 0, 1), block, fixed(3)),
        Problem((4, 4), block, fixed(0)),
        Problem((3, 0, 3, 1), ALL_FILTERS, varying(target, 2)),
        Problem((3, 0, 3, 1), block, varying(target, 2)),
    ]
    assert max(distances(model, problems)) <= BOUND_FLOAT64


def test_rows_with_samplers_of_their_own_keep_their_laws_beside_a_greedy_row() -> None:
    target = TableTarget(dtype=mx.float64, seed=11)
    model = Enumeration(target, TableHead(target, REDUCED, seed=12), horizon=3)
    problems = [
        Problem((1, 2), FILTERS["top_k and top_p"], fixed(1)),
        Problem((4, 0, 3, 3), SamplerSettings(temperature=0.0), fixed(2)),
        Problem((3, 0, 3), replace(FILTERS["min_p"], acceptance=BLOCK), fixed(2)),
        Problem((3, 0, 3), replace(MIX, acceptance=BLOCK), fixed(2), GRAMMAR),
        Problem((2, 2), SamplerSettings(temperature=0.0, **EVERYTHING), fixed(1), GRAMMAR),
        Problem((2, 2), SamplerSettings(temperature=0.7, acceptance=TOKEN), fixed(1), GRAMMAR),
    ]
    assert max(distances(model, problems)) <= BOUND_FLOAT64


def test_tokens_outside_the_draft_vocabulary_appear_with_their_own_frequency() -> None:
    target = TableTarget(dtype=mx.float64, seed=13)
    model = Enumeration(target, TableHead(target, REDUCED, seed=14), horizon=2)
    problem = Problem(PROMPT, SamplerSettings(), fixed(2))
    [law] = model.text_laws([problem])
    outside = [token for token in range(target.vocab_size) if token not in REDUCED]
    expected = plain_law(target, problem, 2)
    assert np.allclose(law[:, outside].sum(), expected[:, outside].sum(), rtol=0, atol=1e-12)
    assert expected[:, outside].sum() > 0.05
