"""How sure a ratio is: known answers, noise that must not be taken for a gain, and too few prompts."""

from __future__ import annotations

import random
from math import exp

import pytest
from mtplxd.tune.intervals import LEAST_PAIRS, _student, compare


def speeds(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


def noisy(ratio: float, noise: float, seed: int, count: int = 8) -> dict[int, float]:
    draw = random.Random(seed)
    return speeds([10 * ratio * exp(draw.gauss(0, noise)) for _ in range(count)])


PLAIN = speeds([10.0] * 8)


def test_equal_ratios_have_no_width() -> None:
    found = compare(speeds([15.0] * 8), PLAIN)
    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))
    assert found.above_one


def test_the_ratio_is_the_geometric_mean_of_the_prompts_and_lies_within_its_interval() -> None:
    found = compare(speeds([20.0, 5.0, 20.0, 5.0, 20.0, 5.0, 20.0, 5.0]), PLAIN)
    assert found is not None
    assert found.ratio == pytest.approx(1.0)
    assert found.low < 1.0 < found.high
    assert not found.above_one


def test_one_set_of_numbers_gives_one_interval() -> None:
    assert compare(noisy(1.2, 0.1, 3), PLAIN) == compare(noisy(1.2, 0.1, 3), PLAIN)


def test_pairs_are_of_the_same_prompt_whatever_their_order() -> None:
    slow = {3: 5.0, 2: 10.0, 1: 20.0, 0: 40.0, 4: 80.0}
    fast = {at: speed * 1.1 for at, speed in sorted(slow.items())}
    found = compare(fast, slow)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((1.1, 1.1))


def test_a_prompt_that_one_side_lacks_is_no_pair_and_too_few_pairs_say_nothing() -> None:
    few = speeds([15.0] * LEAST_PAIRS)
    assert compare(few, PLAIN) is not None
    assert compare(speeds([15.0] * (LEAST_PAIRS - 1)), PLAIN) is None
    assert compare(few, dict.fromkeys(range(1, 9), 10.0)) is None
    assert compare(few, {0: 0.0, **dict.fromkeys(range(1, 9), 10.0)}) is None


def test_the_interval_covers_what_it_promises() -> None:
    """Of 400 sets of eight without a gain about 10 of each side may miss; the plain percentiles miss 25."""
    found = [compare(noisy(1.0, 0.08, seed), PLAIN) for seed in range(400)]
    above = sum(one.low > 1 for one in found if one)
    below = sum(one.high < 1 for one in found if one)
    assert above <= 19
    assert below <= 19
    assert above + below >= 4  # and it is no interval of everything


def test_a_stall_of_one_answer_makes_no_winner() -> None:
    values = [10.1, 9.9, 10.0, 10.2, 9.8, 10.0, 9.9, 30.0]
    found = compare(speeds(values), PLAIN)
    assert found is not None
    assert found.ratio > 1.1
    assert not found.above_one


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.7764), (7, 2.3646), (11, 2.2010), (30, 2.0423)])
def test_students_quantile_is_the_table_s(freedom: int, quantile: float) -> None:
    assert _student(freedom) == pytest.approx(quantile, rel=4e-3)
