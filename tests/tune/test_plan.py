"""Which answers a measurement makes: every prompt at every depth, one seed, warm-ups apart, no depth too many."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtplxd.errors import InvalidArgument
from mtplxd.tune.plan import WARM_TOKENS, plan_steps, settle_depths, settle_tokens
from mtplxd.tune.prompts import Prompt, prompt_seed

DEPTHS = st.lists(st.integers(0, 8), min_size=1, max_size=5, unique=True)


def make_prompts(count: int, seed: int = 0) -> list[Prompt]:
    return [Prompt(at, f"prompt {at}", prompt_seed(seed, at)) for at in range(count)]


@given(DEPTHS, st.integers(1, 12), st.integers(2, 300), st.integers(0, 2**64 - 1))
def test_every_prompt_sees_every_depth_once_with_one_seed(
    depths: list[int], prompts: int, tokens: int, seed: int
) -> None:
    timed = [step for step in plan_steps(make_prompts(prompts, seed), depths, tokens) if step.timed]
    seen = defaultdict(list)
    seeds = defaultdict(set)
    for step in timed:
        seen[step.prompt].append(step.depth)
        seeds[step.prompt].add(step.seed)
        assert step.tokens == tokens
    assert all(sorted(seen[at]) == sorted(depths) for at in range(prompts))
    assert [len(seeds[at]) for at in range(prompts)] == [1] * prompts
    assert len({seed for own in seeds.values() for seed in own}) == prompts


@given(DEPTHS, st.integers(1, 12))
def test_depths_take_turns_prompt_by_prompt(depths: list[int], prompts: int) -> None:
    timed = [step for step in plan_steps(make_prompts(prompts), depths, 8) if step.timed]
    # all depths of a prompt before the next prompt
    assert [step.prompt for step in timed] == [at for at in range(prompts) for _ in depths]
    # and no depth always first: over as many prompts as there are depths, each begins once
    firsts = [step.depth for step in timed[:: len(depths)]]
    for begin in range(0, prompts - len(depths) + 1, len(depths)):
        assert sorted(firsts[begin : begin + len(depths)]) == sorted(depths)


@given(DEPTHS, st.integers(1, 6))
def test_each_shape_is_warmed_first_and_not_timed(depths: list[int], prompts: int) -> None:
    steps = plan_steps(make_prompts(prompts), depths, 100)
    warm = steps[: len(depths)]
    assert [step.depth for step in warm] == depths
    assert not any(step.timed for step in warm)
    assert all(step.timed for step in steps[len(depths) :])
    assert {step.tokens for step in warm} == {WARM_TOKENS}


def test_a_depth_beyond_the_heads_limit_is_clipped_and_said() -> None:
    depths, notes = settle_depths([0, 2, 5, 9, 2], 4)
    assert depths == (0, 2, 4)
    assert notes == (
        "depth 5 clipped to 4: the head's limit is 4",
        "depth 9 clipped to 4: the head's limit is 4",
    )


def test_without_a_head_all_is_plain_and_said() -> None:
    depths, notes = settle_depths([0, 1], 0)
    assert depths == (0,)
    assert notes == ("depth 1 clipped to 0: the model is loaded without a head",)


@pytest.mark.parametrize(("depth_max", "depths"), [(0, (0,)), (2, (0, 1, 2)), (8, (0, 1, 2, 3))])
def test_without_a_wish_depths_go_as_far_as_head_and_habit(depth_max: int, depths: tuple[int, ...]) -> None:
    assert settle_depths([], depth_max) == (depths, ())


def test_fewer_than_two_tokens_are_refused() -> None:
    assert settle_tokens(0) == 128
    assert settle_tokens(2) == 2
    with pytest.raises(InvalidArgument, match="too few tokens") as refused:
        settle_tokens(1)
    assert refused.value.field == "max_tokens"
