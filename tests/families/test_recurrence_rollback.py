"""A recurrent layer's state after going back is what mlx-lm's own classes have after the committed tokens alone."""

from __future__ import annotations

from typing import Any

import pytest
from mtplxd.families.caches import make_caches
from mtplxd.families.caches.state import StateCache
from mtplxd.families.recurrence import wrap_recurrences
from mtplxd.families.recurrence.taped import SHORT
from mtplxd.platform.mlx import mx
from support.recurrent import StockRun, farthest, held, random_model, roll_back, states, tokens_of

DELTA = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "kimi_linear", "kimi_k3", "bailing_moe_v3")
SCANNED = ("nemotron_h", "falcon_h1", "granitemoehybrid", "mamba2", "plamo2")
FURTHER = ("olmo_hybrid", "bailing_hybrid", "bailing_moe_linear", "jamba", "mamba", "lfm2", "lfm2_moe")
PROMPT, STRETCH = 21, 4
ROUNDING = 2e-6
"""A scan in one piece and one in steps round differently, and so do products of other shapes."""


@pytest.fixture(scope="module", params=[*DELTA, *SCANNED, *FURTHER])
def pair(request: pytest.FixtureRequest) -> tuple[str, Any, Any]:
    """A family's name, a wrapped model, and the same one as mlx-lm makes it."""
    wrapped = random_model(request.param)
    assert wrap_recurrences(wrapped) == []
    return request.param, wrapped, random_model(request.param)


@pytest.mark.parametrize("kept", range(STRETCH + 1))
def test_rounds_that_keep_any_part_leave_the_committed_state(pair: tuple[str, Any, Any], kept: int) -> None:
    family, model, stock = pair
    caches, fresh = make_caches(model, 1), StockRun(stock).feed(tokens_of(0, PROMPT))
    model(tokens_of(0, PROMPT), cache=caches)
    for turn in range(3):
        drafted = tokens_of(turn + 1, STRETCH)
        model(drafted, cache=caches)
        roll_back(caches, [PROMPT + turn * kept + kept])
        if family in DELTA and kept:
            assert farthest(states(caches), fresh.feed_part(drafted, [kept]).states) == 0
        elif kept:
            fresh.feed(drafted[:, :kept])
        assert farthest(states(caches), fresh.states) <= (ROUNDING if family in SCANNED else 4 * ROUNDING)


def test_the_next_forward_goes_on_from_the_committed_state(pair: tuple[str, Any, Any]) -> None:
    _, model, stock = pair
    caches = make_caches(model, 1)
    model(tokens_of(0, PROMPT), cache=caches)
    model(tokens_of(1, STRETCH), cache=caches)
    roll_back(caches, [PROMPT + 2])
    found = model(tokens_of(2, 3), cache=caches)
    text = mx.concatenate([tokens_of(0, PROMPT), tokens_of(1, STRETCH)[:, :2], tokens_of(2, 3)], axis=1)
    assert mx.allclose(found, stock(text)[:, -3:], atol=2e-5).item()


def test_a_forward_goes_back_twice_as_padding_and_then_rejected_drafts_do(pair: tuple[str, Any, Any]) -> None:
    _, model, stock = pair
    caches = make_caches(model, 1)
    model(tokens_of(0, PROMPT), cache=caches)
    model(tokens_of(1, STRETCH), cache=caches)
    roll_back(caches, [PROMPT + 3])
    roll_back(caches, [PROMPT + 1])
    fresh = StockRun(stock).feed(tokens_of(0, PROMPT)).feed(tokens_of(1, STRETCH)[:, :1])
    assert farthest(states(caches), fresh.states) <= 4 * ROUNDING


@pytest.mark.parametrize("kept", [0, 1, SHORT + 5, SHORT + 40])
def test_a_prefill_chunk_goes_back_to_any_place(pair: tuple[str, Any, Any], kept: int) -> None:
    _, model, stock = pair
    chunk = tokens_of(1, SHORT + 40)
    caches, fresh = make_caches(model, 1), StockRun(stock).feed(tokens_of(0, PROMPT))
    model(tokens_of(0, PROMPT), cache=caches)
    model(chunk, cache=caches)
    roll_back(caches, [PROMPT + kept])
    if kept:
        fresh.feed(chunk[:, :kept])
    assert farthest(states(caches), fresh.states) <= 4 * ROUNDING


def test_a_first_forward_goes_back_to_nothing(pair: tuple[str, Any, Any]) -> None:
    _, model, _ = pair
    caches = make_caches(model, 1)
    model(tokens_of(0, STRETCH), cache=caches)
    roll_back(caches, [0])
    assert all(slot is None for cache in held(caches) for slot in cache.slots)


def test_rows_that_keep_unequal_parts_have_each_its_own_state(pair: tuple[str, Any, Any]) -> None:
    _, model, stock = pair
    caches = make_caches(model, 3)
    prompt, drafted = tokens_of(0, PROMPT, 3), tokens_of(1, STRETCH, 3)
    model(prompt, cache=caches)
    model(drafted, cache=caches)
    roll_back(caches, [PROMPT + kept for kept in (3, 0, STRETCH)])
    for row, kept in enumerate((3, 0, STRETCH)):
        fresh = StockRun(stock).feed(prompt[row : row + 1])
        if kept:
            fresh.feed(drafted[row : row + 1, :kept])
        own = [array[row : row + 1] for array in states(caches)]
        assert farthest(own, fresh.states) <= 8 * ROUNDING


def test_a_successor_in_flight_and_the_round_before_it_can_both_be_taken_back(
    pair: tuple[str, Any, Any],
) -> None:
    _, model, stock = pair
    caches = make_caches(model, 1)
    model(tokens_of(0, PROMPT), cache=caches)
    model(tokens_of(1, 1), cache=caches)
    model(tokens_of(2, 1), cache=caches)
    both = StockRun(stock).feed(tokens_of(0, PROMPT)).feed(tokens_of(1, 1)).feed(tokens_of(2, 1))
    assert farthest(states(caches), both.states) <= 4 * ROUNDING
    roll_back(caches, [PROMPT + 1])
    one = StockRun(stock).feed(tokens_of(0, PROMPT)).feed(tokens_of(1, 1))
    assert farthest(states(caches), one.states) <= 4 * ROUNDING
    roll_back(caches, [PROMPT])
    assert farthest(states(caches), StockRun(stock).feed(tokens_of(0, PROMPT)).states) <= 4 * ROUNDING


def test_keeping_all_of_a_forward_computes_nothing() -> None:
    model = random_model("qwen3_next")
    wrap_recurrences(model)
    caches = make_caches(model, 1)
    model(tokens_of(0, STRETCH), cache=caches)
    before = states(caches)
    roll_back(caches, [STRETCH])
    assert all(now is then for now, then in zip(states(caches), before, strict=True))


def test_going_back_beyond_the_last_forward_is_refused_and_changes_nothing() -> None:
    model = random_model("qwen3_5")
    wrap_recurrences(model)
    [cache, *_] = caches = make_caches(model, 1)
    for turn in range(2):
        model(tokens_of(turn, STRETCH), cache=caches)
    before = states(caches)
    for length in (STRETCH - 1, 2 * STRETCH + 1):
        with pytest.raises(ValueError, match="cannot roll"):
            cache.roll_back([length])
    assert cache.lengths == [2 * STRETCH]
    assert all(now is then for now, then in zip(states(caches), before, strict=True))


def test_rows_of_which_only_some_go_beyond_the_last_forward_are_refused() -> None:
    model = random_model("qwen3_5")
    wrap_recurrences(model)
    [cache, *_] = caches = make_caches(model, 2)
    for turn in range(2):
        model(tokens_of(turn, 1, 2), cache=caches)
    with pytest.raises(ValueError, match="cannot roll"):
        cache.roll_back([2, 0])
    assert cache.lengths == [2, 2]


def test_a_chunk_of_a_prefill_holds_its_inputs_no_longer_than_the_next_forward() -> None:
    model = random_model("qwen3_next")
    wrap_recurrences(model)
    caches = make_caches(model, 1)
    model(tokens_of(0, 512), cache=caches)
    [cache, *_] = held(caches)
    slots = sum(array.nbytes for array in cache.state)
    inputs = 512 * 64 * 4
    assert cache.nbytes == slots + inputs  # not its projections, which are several times as wide
    model(tokens_of(1, 1), cache=caches)
    assert cache.nbytes == 2 * slots
    model(tokens_of(2, STRETCH), cache=caches)
    model(tokens_of(3, 1), cache=caches)
    assert cache.nbytes == 2 * slots


def test_a_state_cache_without_a_forward_has_nothing() -> None:
    cache = StateCache(2, 3)
    assert cache.state == []
    assert cache.nbytes == 0
    cache.roll_back([0, 0])
    with pytest.raises(ValueError, match="cannot roll"):
        cache.roll_back([0, 1])
