"""Where texts part from plain decoding, and what rounding may explain of it."""

from __future__ import annotations

import numpy as np
import pytest
from mtplxd.engine.request import SamplerSettings
from mtplxd.tune.identity import (
    Identity,
    Parting,
    failures,
    first_difference,
)
from mtplxd.tune.identity_margins import judge_coupled, judge_greedy
from mtplxd.tune.verify_chain import bound_law, rank_law

NOISE = 1e-3


def real(_place: int, _plain: int, _other: int) -> Parting:
    return Parting(1.0, False)


def tie(_place: int, _plain: int, _other: int) -> Parting:
    return Parting(1e-6, True)


def test_equal_texts_count_whole() -> None:
    found = Identity()
    found.compare(0, 1, [1, 2, 3], [1, 2, 3], real)
    found.compare(1, 2, [4, 5], [4, 5], real)
    assert (found.tokens, found.divergences, found.near_ties) == (5, 0, 0)
    assert failures("greedy", found) == []


def test_a_text_counts_up_to_its_first_difference_once() -> None:
    found = Identity()
    found.compare(2, 3, [1, 2, 3, 4], [1, 9, 9, 9], real)
    assert (found.tokens, found.divergences) == (2, 1)
    [one] = found.found
    assert (one.prompt, one.depth, one.position, one.margin) == (2, 3, 1, 1.0)
    [reason] = failures("greedy", found)
    assert "depth 3, prompt 2, token 1 (margin 1)" in reason


def test_near_ties_fail_above_one_in_a_hundred_tokens() -> None:
    found = Identity()
    found.compare(0, 1, [1] * 100, [1] * 99 + [2], tie)
    assert failures("coupled", found) == []
    found.compare(0, 2, [1] * 50, [2] * 50, tie)
    assert failures("coupled", found) == ["coupled: 2 near-ties in 101 tokens, more than 1 %"]


def test_the_first_difference_is_found() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2], [3, 2]) == 0
    assert first_difference([], []) is None


@pytest.mark.parametrize(("gap", "near"), [(1.9 * NOISE, True), (2.1 * NOISE, False)])
def test_greedy_is_near_below_twice_the_noise(gap: float, near: bool) -> None:
    logits = np.array([1.0, 3.0, 3.0 - gap, 0.0])
    found = judge_greedy(logits, 1, 2, NOISE)
    assert found.margin == pytest.approx(gap)
    assert found.near_tie is near


def test_the_third_token_is_not_excused_by_a_tie_of_the_first_two() -> None:
    assert not judge_greedy(np.array([3.0, 3.0, 2.0]), 0, 2, NOISE).near_tie


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize(("share", "near"), [(0.9, True), (1.1, False)])
def test_a_coupled_race_is_near_below_twice_the_noise_over_the_temperature(
    temperature: float, share: float, near: bool
) -> None:
    logits = np.array([2.0, 1.0, 0.0])
    scores = logits / temperature
    lead = share * 2 * NOISE / temperature
    # times that put id 0 ahead of id 1 by `lead`, and id 2 far behind
    times = np.exp(scores - np.array([5.0, 5.0 - lead, 0.0]))
    found = judge_coupled(logits, times, temperature, 1.0, 0, 1, NOISE)
    assert found.margin == pytest.approx(lead)
    assert found.near_tie is near


def border(mass_before: float) -> np.ndarray:
    """Logits of three ids whose last has so much mass before it."""
    return np.log(np.array([0.5, mass_before - 0.5, 1 - mass_before]))


def times_for(logits: np.ndarray, scores: list[float]) -> np.ndarray:
    return np.exp(logits - np.array(scores))


def test_a_winner_that_only_the_border_of_top_p_excludes_is_near() -> None:
    for mass, near in ((0.95 + 1e-5, True), (0.95 + 1e-2, False)):
        logits = border(mass)
        found = judge_coupled(logits, times_for(logits, [1.0, 0.0, 4.0]), 1.0, 0.95, 0, 2, NOISE)
        assert found.margin == pytest.approx(-3.0)  # it would have won, had it taken part
        assert found.near_tie is near


def test_a_loser_is_near_where_only_the_border_kept_the_winner_in() -> None:
    for mass, near in ((0.95 - 1e-5, True), (0.95 - 1e-2, False)):
        logits = border(mass)
        found = judge_coupled(logits, times_for(logits, [1.0, 0.0, 4.0]), 1.0, 0.95, 2, 0, NOISE)
        assert found.near_tie is near


def test_a_border_excuses_no_token_that_would_have_lost_anyway() -> None:
    logits = border(0.95 + 1e-5)
    assert not judge_coupled(logits, times_for(logits, [1.0, 0.0, -2.0]), 1.0, 0.95, 0, 2, NOISE).near_tie
    assert not judge_coupled(logits, times_for(logits, [1.0, 0.0, 4.0]), 1.0, 0.95, 0, 1, NOISE).near_tie


def test_bounds_enclose_every_law_within_the_slack() -> None:
    rng = np.random.default_rng(1)
    slack = 0.02
    for _ in range(200):
        logits = rng.normal(0, 2, 30)
        bounds = bound_law(logits, 0.8, 0.9, slack)
        kept = set(np.flatnonzero(bounds.must).tolist())
        assert bounds.may[bounds.must].all()
        for _ in range(20):
            law = rank_law(logits + rng.uniform(-slack / 2, slack / 2, 30), 0.8, 0.9)
            inside = set(law.ids[law.masses > 0].tolist())
            assert kept <= inside <= set(np.flatnonzero(bounds.may).tolist())


def test_the_plain_law_is_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtplxd.engine.sampling import filter_logits
    from mtplxd.platform.mlx import mx
    from support.exact_float64 import use_exact_exponentials
    from support.laws import masses as masses_of

    use_exact_exponentials(monkeypatch)
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 2, (50, 40))
    logits[:, 7] = logits[:, 3]  # ties break by lower id
    for temperature, top_p in ((1.0, 1.0), (0.6, 0.95), (1.3, 0.4)):
        sampler = SamplerSettings(temperature=temperature, top_p=top_p)
        theirs = masses_of(filter_logits(mx.array(logits, mx.float64), sampler, full=True), 40)
        for row, law in zip(logits, theirs, strict=True):
            ids, masses = rank_law(row, temperature, top_p)
            assert np.allclose(law[ids], masses, atol=1e-12)
