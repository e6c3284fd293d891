"""The filter chain equals its equations for any logits and settings, in any batch, however few candidates it ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine import ranking, sampling
from mtplxd.engine.exponential import sum_exponentials
from mtplxd.engine.ranking import STRIPS, rank
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.sampling import draw, filter_logits, filter_rows, scatter
from mtplxd.platform.mlx import mx
from support.exact_float64 import use_exact_exponentials
from support.laws import masses
from support.reference_laws import reference_law

GREEDY = SamplerSettings(temperature=0.0)

quarters = st.lists(st.integers(-40, 40), min_size=1, max_size=24).map(lambda steps: np.array(steps) / 4)
samplers = st.builds(
    SamplerSettings,
    temperature=st.sampled_from([0.013, 0.37, 0.6, 1.0, 1.7, 51.0]),
    top_k=st.sampled_from([0, 1, 2, 3, 7, 100]),
    top_p=st.sampled_from([1e-9, 0.137, 0.513, 0.731, 0.9371, 1.0]),
    min_p=st.sampled_from([0.0, 0.0137, 0.213, 0.677, 1.0]),
)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_exponentials(monkeypatch)


def law_of(logits: np.ndarray, sampler: SamplerSettings, dtype: Any = None) -> np.ndarray:
    return masses(filter_logits(mx.array(logits, dtype or mx.float32), sampler), len(logits))


@pytest.mark.usefixtures("exact")
def test_any_mix_of_filters_equals_the_equations_in_float64() -> None:
    @settings(deadline=None, max_examples=200, derandomize=True, database=None)
    @given(quarters, samplers)
    def check(logits: np.ndarray, sampler: SamplerSettings) -> None:
        law = law_of(logits, sampler, mx.float64)
        assert np.abs(law - reference_law(logits, sampler)).max() <= 1e-12

    check()


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(quarters, samplers)
def test_any_mix_of_filters_equals_the_equations_in_float32(
    logits: np.ndarray, sampler: SamplerSettings
) -> None:
    law = law_of(logits, sampler)
    assert law.dtype == np.float32
    assert np.abs(law - reference_law(logits, sampler)).max() <= 3e-6
    assert abs(law.sum(dtype=np.float64) - 1) <= 1e-5


def test_equal_logits_are_kept_by_lower_id() -> None:
    logits = np.array([0.0, 2.0, 1.0, 2.0, 2.0, 1.0])
    assert np.flatnonzero(law_of(logits, SamplerSettings(top_k=2))).tolist() == [1, 3]
    assert np.flatnonzero(law_of(logits, SamplerSettings(top_k=4))).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(law_of(logits, SamplerSettings(top_p=0.4))).tolist() == [1, 3]
    assert masses(filter_rows(mx.array(logits)[None], [GREEDY]), 6).tolist() == [[0, 1, 0, 0, 0, 0]]


def test_min_p_one_keeps_every_most_likely_token() -> None:
    law = law_of(np.array([3.0, 1.0, 3.0, 2.9]), SamplerSettings(min_p=1.0))
    assert law.tolist() == [0.5, 0.0, 0.5, 0.0]


@pytest.mark.parametrize("top_p", [1e-30, 1e-46, 5e-324])
@pytest.mark.parametrize("top_k", [0, 2])
def test_a_tiny_top_p_keeps_exactly_the_most_likely_token(top_p: float, top_k: int) -> None:
    law = law_of(np.array([0.0, 5.0, 5.0, 1.0]), SamplerSettings(top_p=top_p, top_k=top_k))
    assert law.tolist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("temperature", [1e-4, 1e-2, 1.0, 1e2, 1e4])
@pytest.mark.parametrize("filters", [{}, {"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}], ids=str)
def test_extreme_temperatures_give_finite_laws(temperature: float, filters: dict[str, Any]) -> None:
    logits = np.random.default_rng(0).normal(0, 12, 300)
    sampler = SamplerSettings(temperature=temperature, **filters)
    law = law_of(logits, sampler)
    assert np.isfinite(law).all()
    assert np.abs(law - reference_law(logits.astype(np.float32), sampler)).max() <= 1e-5


def test_a_vocabulary_of_one_token_is_certain_under_every_sampler() -> None:
    for sampler in (SamplerSettings(), SamplerSettings(top_k=3, top_p=0.1, min_p=1.0), GREEDY):
        assert masses(filter_rows(mx.array([[-7.0]]), [sampler]), 1).tolist() == [[1.0]]


def test_positions_of_a_row_are_filtered_each_for_itself() -> None:
    logits = np.random.default_rng(1).normal(0, 3, (2, 3, 20)).astype(np.float32)
    sampler = SamplerSettings(temperature=0.8, top_k=6, top_p=0.9, min_p=0.02)
    laws = masses(filter_rows(mx.array(logits), [sampler, sampler]), 20)
    for b in range(2):
        for place in range(3):
            assert np.abs(laws[b, place] - reference_law(logits[b, place], sampler)).max() <= 1e-6


def test_rows_keep_their_own_samplers_and_greedy_rows_their_argmax() -> None:
    logits = np.random.default_rng(2).normal(0, 3, (4, 2, 30)).astype(np.float32)
    mixed = [SamplerSettings(top_k=3), GREEDY, SamplerSettings(temperature=0.5, min_p=0.1), GREEDY]
    laws = masses(filter_rows(mx.array(logits), mixed), 30)
    for b, sampler in enumerate(mixed):
        for place in range(2):
            assert np.abs(laws[b, place] - reference_law(logits[b, place], sampler)).max() <= 1e-6


def test_too_few_candidates_are_noticed_and_ranking_all_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CANDIDATES", 5)
    flagged = []

    @settings(deadline=None, max_examples=150, derandomize=True, database=None)
    @given(st.lists(st.integers(-12, 12), min_size=6, max_size=24), samplers)
    def check(steps: list[int], sampler: SamplerSettings) -> None:
        logits = np.array(steps) / 4
        expected = reference_law(logits, sampler)
        cut = filter_logits(mx.array(logits, mx.float32), sampler)
        whole = filter_logits(mx.array(logits, mx.float32), sampler, full=True)
        assert whole.sound.item()
        assert np.abs(masses(whole, len(steps)) - expected).max() <= 3e-6
        if cut.sound.item():
            assert np.abs(masses(cut, len(steps)) - expected).max() <= 3e-6
        flagged.append(not cut.sound.item())

    check()
    assert 0 < sum(flagged) < len(flagged)


def test_candidates_found_by_columns_are_the_right_ones_or_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "CANDIDATES", 3)
    monkeypatch.setattr(ranking, "STRIPS", 2)
    flagged = []
    mixes = samplers.filter(lambda sampler: sampler.top_k < 4)

    @settings(deadline=None, max_examples=150, derandomize=True, database=None)
    @given(st.integers(0, 10**6), st.sampled_from([32, 40, 64]), st.sampled_from([1, 8]), mixes)
    def check(seed: int, size: int, step: int, sampler: SamplerSettings) -> None:
        logits = np.random.default_rng(seed).integers(-60, 60, size) // step * step / 4
        cut = filter_logits(mx.array(logits, mx.float32), sampler)
        if cut.sound.item():
            assert np.abs(masses(cut, size) - reference_law(logits, sampler)).max() <= 3e-6
        flagged.append(not cut.sound.item())

    check()
    assert 0 < sum(flagged) < len(flagged) * 0.9


@settings(deadline=None, max_examples=50, derandomize=True, database=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 5]), st.sampled_from([1, 20]))
def test_the_candidates_of_a_large_vocabulary_are_its_largest_logits(
    seed: int, count: int, step: int
) -> None:
    logits = np.random.default_rng(seed).integers(-100, 100, (2, 32 * STRIPS)) // step
    found = rank(mx.array(logits, mx.float32), count)
    ids, order, values = np.array(found.ids), np.array(found.order), np.array(found.values)
    assert np.array_equal(values, -np.sort(-logits, axis=-1)[:, :count])
    assert (np.diff(ids, axis=-1) > 0).all()
    ranked = np.take_along_axis(ids, order, -1)
    assert np.array_equal(np.take_along_axis(logits, ranked, -1), values)
    assert not found.all


@pytest.mark.parametrize(
    "filters", [{"top_p": 0.95}, {"top_k": 40, "top_p": 0.9}, {"top_k": 200, "min_p": 0.05}], ids=str
)
def test_a_vocabulary_of_49k_is_filtered_by_the_same_equations(filters: dict[str, Any]) -> None:
    logits = np.random.default_rng(3).normal(0, 4, (2, 49152)).astype(np.float32)
    sampler = SamplerSettings(temperature=0.6, **filters)
    law = filter_rows(mx.array(logits), [sampler, sampler])
    assert law.sound.tolist() == [True, True]
    for row, p in zip(logits, masses(law, 49152), strict=True):
        expected = reference_law(row, sampler)
        assert np.abs(p - expected).max() <= 1e-5
        assert abs(int((p > 0).sum()) - int((expected > 0).sum())) <= 1


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 10.0, 80.0]))
def test_sums_of_exponentials_are_as_good_as_float32_allows(seed: int, spread: float) -> None:
    values = np.random.default_rng(seed).normal(0, spread, (2, 500)).astype(np.float32)
    largest = values.max(axis=1, keepdims=True)
    expected = np.exp((values - largest).astype(np.float64)).sum(axis=1, keepdims=True)
    found = np.array(sum_exponentials(mx.array(values), mx.array(largest)))
    assert np.abs(found / expected - 1).max() <= 3e-6


def test_masked_logits_weigh_nothing() -> None:
    law = law_of(np.array([-np.inf, 1.0, -np.inf, 2.0]), SamplerSettings(top_p=0.99))
    assert law[[0, 2]].tolist() == [0.0, 0.0]
    assert np.abs(law - reference_law(np.array([-1e9, 1.0, -1e9, 2.0]), SamplerSettings())).max() <= 1e-6


def test_a_cut_right_at_the_last_candidate_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CANDIDATES", 3)
    monkeypatch.setattr(sampling, "TIES", 1)
    tied = mx.array([[4.0, 3.0, 2.0, 2.0, 2.0, 1.0]])
    assert not filter_logits(tied, SamplerSettings(top_p=0.999)).sound.item()
    assert not filter_logits(tied, SamplerSettings(top_k=3)).sound.item()
    assert filter_logits(tied, SamplerSettings(top_k=2)).sound.item()


@pytest.mark.parametrize("filters", [{"top_k": 40}, {"top_p": 0.95}, {"top_k": 40, "top_p": 0.5}], ids=str)
def test_fewer_allowed_ids_than_candidates_are_cut_for_good_at_once(filters: dict[str, Any]) -> None:
    logits = np.full((1, 49152), -np.inf, np.float32)
    logits[0, [7, 400, 48_000]] = [1.0, 2.0, 0.5]
    law = filter_logits(mx.array(logits), SamplerSettings(temperature=0.8, **filters))
    assert law.sound.item()
    assert set(np.flatnonzero(masses(law, 49152)[0])) <= {7, 400, 48_000}


def test_what_is_masked_is_never_drawn_from_a_law_that_is_not_cut() -> None:
    logits = np.full((1, 49_152), -np.inf, np.float32)
    logits[0, [7, 400, 48_000]] = [1.0, 2.0, 0.5]
    law = filter_logits(mx.array(logits), SamplerSettings(temperature=1.3))
    assert np.flatnonzero(masses(law, 49_152)[0]).tolist() == [7, 400, 48_000]
    assert draw(law, mx.array([0.0])).tolist() == [7]


def test_a_law_over_a_reduced_vocabulary_is_zero_elsewhere() -> None:
    law = mx.array([[0.25, 0.75], [1.0, 0.0]])
    spread = scatter(law, mx.array([1, 4], mx.int32), 6)
    assert np.array(spread).tolist() == [[0, 0.25, 0, 0, 0.75, 0], [0, 1.0, 0, 0, 0, 0]]
    assert scatter(law, None, 2) is law


def test_a_draft_law_over_many_ids_keeps_the_likeliest_and_is_a_law() -> None:
    logits = np.random.default_rng(5).normal(0, 1, (1, 8192)).astype(np.float32)
    for filters in ({"top_p": 0.99}, {"top_k": 500}, {"top_k": 500, "top_p": 0.9, "min_p": 1e-6}):
        sampler = SamplerSettings(temperature=1.5, **filters)
        law = masses(filter_rows(mx.array(logits), [sampler], limit=16, closed=True), 8192)[0]
        kept = np.flatnonzero(law)
        assert set(kept) == set(np.argsort(-logits[0])[: len(kept)])
        assert 10 <= len(kept) <= 16
        assert abs(law.sum() - 1) <= 1e-6
