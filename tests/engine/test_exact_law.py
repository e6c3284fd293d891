"""Speculative decoding has plain decoding's law: every outcome of the real round is enumerated on a table model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mtplxd.engine.request import SamplerSettings
from mtplxd.platform.mlx import mx
from support.enumeration import Enumeration, Problem
from support.exact_float64 import use_exact_exponentials
from support.proof_cases import (
    ALL_FILTERS,
    BOUND_FLOAT32,
    BOUND_FLOAT64,
    HORIZON,
    MIXES,
    PROMPT,
    REDUCED,
    distances,
    fixed,
    plain_law,
    varying,
)
from support.reference_laws import Text, total_variation
from support.table_model import TableHead, TableTarget


@pytest.fixture(autouse=True)
def _exact_exponentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_exponentials(monkeypatch)


@pytest.mark.parametrize("off", [{"temperature": 1.0}, {"top_k": 0}, {"top_p": 1.0}, {"min_p": 0.0}], ids=str)
def test_every_filter_of_the_mix_matters(off: dict[str, float]) -> None:
    target, without = TableTarget(), replace(ALL_FILTERS, **off)
    laws = [plain_law(target, PROMPT, sampler, 4) for sampler in (ALL_FILTERS, without)]
    assert total_variation(*laws) > 1e-3


@pytest.mark.parametrize("vocab", [None, REDUCED], ids=["full draft vocabulary", "reduced draft vocabulary"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_law_of_six_tokens_under_all_filters_is_plain_decodings(depth: int, vocab: Text | None) -> None:
    target = TableTarget(dtype=mx.float64)
    model = Enumeration(target, TableHead(target, vocab, spread=2.2), HORIZON)
    [distance] = distances(model, [Problem(PROMPT, ALL_FILTERS, fixed(depth))])
    assert distance <= BOUND_FLOAT64


@pytest.mark.parametrize("name", MIXES)
def test_each_mix_of_filters_keeps_the_law(name: str) -> None:
    target = TableTarget(dtype=mx.float64, seed=3)
    model = Enumeration(target, TableHead(target, REDUCED, seed=4), HORIZON)
    [distance] = distances(model, [Problem((4,), MIXES[name], fixed(2))])
    assert distance <= BOUND_FLOAT64


def test_temperature_alone_keeps_the_law() -> None:
    target = TableTarget(dtype=mx.float64, seed=5)
    model = Enumeration(target, TableHead(target, seed=6), horizon=3, prune=False)
    [distance] = distances(model, [Problem((0, 4), SamplerSettings(temperature=1.5), fixed(2))])
    assert distance <= BOUND_FLOAT64


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_draft_lengths_that_depend_on_the_text_keep_the_law(depth: int) -> None:
    target = TableTarget(dtype=mx.float64, seed=7)
    model = Enumeration(target, TableHead(target, REDUCED, seed=8), HORIZON)
    [distance] = distances(model, [Problem(PROMPT, ALL_FILTERS, varying(target, depth))])
    assert distance <= BOUND_FLOAT64


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_float32_keeps_the_law_within_its_own_precision(depth: int) -> None:
    target = TableTarget(dtype=mx.float32)
    model = Enumeration(target, TableHead(target, REDUCED, spread=2.2), HORIZON)
    [distance] = distances(model, [Problem(PROMPT, ALL_FILTERS, fixed(depth))])
    assert distance <= BOUND_FLOAT32


def test_rows_of_other_lengths_and_depths_in_one_batch_keep_their_laws() -> None:
    target = TableTarget(dtype=mx.float64, seed=9)
    model = Enumeration(target, TableHead(target, REDUCED, seed=10), horizon=5)
    problems = [
        Problem((2,), ALL_FILTERS, fixed(1)),
        Problem((0, 1, 2, 3, 4, 0, 1), ALL_FILTERS, fixed(3)),
        Problem((4, 4), ALL_FILTERS, fixed(0)),
        Problem((3, 0, 3, 1), ALL_FILTERS, varying(target, 2)),
    ]
    assert max(distances(model, problems)) <= BOUND_FLOAT64


def test_rows_with_samplers_of_their_own_keep_their_laws_beside_a_greedy_row() -> None:
    target = TableTarget(dtype=mx.float64, seed=11)
    model = Enumeration(target, TableHead(target, REDUCED, seed=12), horizon=3)
    problems = [
        Problem((1, 2), MIXES["top_k and top_p"], fixed(1)),
        Problem((4, 0, 3, 3), SamplerSettings(temperature=0.0), fixed(2)),
        Problem((3, 0, 3), MIXES["min_p"], fixed(2)),
    ]
    assert max(distances(model, problems)) <= BOUND_FLOAT64


def test_tokens_outside_the_draft_vocabulary_appear_with_their_own_frequency() -> None:
    target = TableTarget(dtype=mx.float64, seed=13)
    model = Enumeration(target, TableHead(target, REDUCED, seed=14), horizon=2)
    sampler = SamplerSettings()
    [law] = model.text_laws([Problem(PROMPT, sampler, fixed(2))])
    outside = [token for token in range(target.vocab_size) if token not in REDUCED]
    expected = plain_law(target, PROMPT, sampler, 2)
    assert np.allclose(law[:, outside].sum(), expected[:, outside].sum(), rtol=0, atol=1e-12)
    assert expected[:, outside].sum() > 0.05
