"""The statistics behind the test of laws: tabled values, uniform marks under the law, wrong decoders found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mtplxd.packs.findings import LEAST_P
from mtplxd.tune.law_test import (
    CELLS,
    HOTTER,
    Marks,
    chi_square,
    chi_square_tail,
    judge_laws,
    mark_tokens,
    upper_gamma,
)
from mtplxd.tune.verify_chain import rank_law

VOCAB = 200


@pytest.mark.parametrize(
    ("freedom", "statistic", "tail"),
    [
        # from printed tables of the chi-square distribution
        (1, 3.841459, 0.05),
        (1, 6.634897, 0.01),
        (2, 13.815511, 0.001),
        (5, 1.145476, 0.95),
        (10, 18.307038, 0.05),
        (15, 7.260944, 0.95),
        (15, 24.995790, 0.05),
        (15, 30.577914, 0.01),
        (15, 37.697298, 0.001),
        (30, 43.772972, 0.05),
        (100, 149.449253, 0.001),
    ],
)
def test_tails_of_chi_square_are_the_tabled_ones(freedom: int, statistic: float, tail: float) -> None:
    assert chi_square_tail(statistic, freedom) == pytest.approx(tail, rel=2e-6)


@pytest.mark.parametrize("x", [0.1, 1.0, 2.4, 2.6, 7.0, 40.0, 300.0])
def test_the_gamma_function_has_its_closed_forms(x: float) -> None:
    assert upper_gamma(1.0, x) == pytest.approx(math.exp(-x), rel=1e-12)
    assert upper_gamma(0.5, x) == pytest.approx(math.erfc(math.sqrt(x)), rel=1e-11)
    poisson = math.fsum(math.exp(-x) * x**n / math.factorial(n) for n in range(4))
    assert upper_gamma(4.0, x) == pytest.approx(poisson, rel=1e-11)


def test_series_and_fraction_meet() -> None:
    assert upper_gamma(7.5, 8.5 - 1e-9) == pytest.approx(upper_gamma(7.5, 8.5 + 1e-9), rel=1e-8)
    assert upper_gamma(7.5, 0.0) == 1.0
    assert 0.0 <= upper_gamma(7.5, 1e4) < 1e-300


def test_equal_counts_have_no_excess() -> None:
    assert chi_square(np.full(CELLS, 7)) == 0.0
    assert chi_square(np.array([12, 8] * 8)) == pytest.approx(CELLS * 4 / 10)


def drawn(
    temperature: float, top_p: float, *, factor: float = 1.0, count: int = 2000, seed: int = 0
) -> Marks:
    """Marks of tokens drawn at `factor` times the temperature they are judged by."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2.5, (count, VOCAB)).astype(np.float32)
    tokens = []
    for row in logits:
        law = rank_law(row, temperature * factor, top_p)
        tokens.append(int(rng.choice(law.ids, p=law.masses)))
    return mark_tokens(logits, tokens, temperature, top_p, 0.0, rng)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 0.95)])
def test_tokens_of_the_law_pass(temperature: float, top_p: float) -> None:
    found = judge_laws([drawn(temperature, top_p)])
    assert found.tokens == 2000
    assert found.p_value > 0.01
    assert found.excluded == 0
    assert found.failures == []


def test_p_values_of_the_law_are_themselves_uniform() -> None:
    values = [judge_laws([drawn(1.0, 0.9, count=160, seed=seed)], trials=1).p_value for seed in range(160)]
    tenths = np.bincount((np.array(values) * 10).astype(int), minlength=10)
    assert chi_square_tail(chi_square(tenths), 9) > 1e-3


@pytest.mark.parametrize("factor", [HOTTER, 0.8])
def test_a_wrong_temperature_fails(factor: float) -> None:
    found = judge_laws([drawn(1.0, 1.0, factor=factor)])
    assert found.p_value < LEAST_P
    assert found.failures


def test_the_stated_power_is_how_often_the_alternative_fails() -> None:
    """Weak enough to be between 0 and 1: the estimate from the laws agrees with wrong decoders really drawn."""
    sets = [drawn(1.0, 0.95, factor=HOTTER, count=350, seed=seed) for seed in range(80)]
    failed = np.mean([judge_laws([marks], trials=1).p_value < LEAST_P for marks in sets])
    stated = judge_laws([drawn(1.0, 0.95, count=350)]).power
    assert 0.05 < stated < 0.98
    assert stated == pytest.approx(failed, abs=0.15)


def test_more_tokens_have_more_power() -> None:
    few, many = (judge_laws([drawn(1.0, 1.0, count=count)]).power for count in (200, 2000))
    assert few < many
    assert many > 0.9


def test_a_token_that_top_p_excludes_fails_whatever_the_p_value() -> None:
    logits = np.log(np.array([[0.6, 0.3, 0.08, 0.02]], np.float32))
    rng = np.random.default_rng(0)
    excluded = mark_tokens(logits, [3], 1.0, 0.95, 1e-5, rng)
    assert (excluded.excluded, excluded.values[0]) == (1, 1.0)
    found = judge_laws([drawn(0.6, 0.95), excluded])
    assert found.p_value > LEAST_P
    assert found.failures == ["law: 1 of 2001 tokens are ones that top-p excludes"]


def test_a_token_at_the_border_of_top_p_is_no_fault_within_the_noise() -> None:
    logits = np.log(np.array([[0.6, 0.35001, 0.04999]], np.float64))
    rng = np.random.default_rng(0)
    assert mark_tokens(logits, [2], 1.0, 0.95, 1e-3, rng).excluded == 0
    assert mark_tokens(logits, [2], 1.0, 0.95, 0.0, rng).excluded == 1
