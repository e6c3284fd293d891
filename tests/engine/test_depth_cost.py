"""Seconds of a round as they are learnt: cold calls, stalls, contexts that grow, shapes nobody has timed."""

from __future__ import annotations

import random

import pytest
from mtplxd.engine.depth.cost import CostTable, lower_median
from mtplxd.engine.depth.fit import Fit
from support.depth_sim import CURVES, measured


def table(*samples: tuple[int, int, float | None]) -> CostTable:
    made = CostTable()
    for sample in samples:
        made.see(*sample)
    return made


def test_the_first_call_of_a_shape_never_counts() -> None:
    made = table((1, 1, 12.5), *[(1, 1, 0.1)] * 3)
    assert made.seconds(1, 1) == pytest.approx(0.1, rel=0.02)
    assert table((1, 1, 12.5)).seconds(1, 1) == 0


def test_a_stall_moves_nothing() -> None:
    calm = [(2, 1, 0.1)] * 8
    assert table(*calm, (2, 1, 1.0), *calm[:2]).seconds(2, 1) == pytest.approx(0.1, rel=0.02)
    assert table(*calm[:2], (2, 1, 1.0), *calm[:2]).seconds(2, 1) == pytest.approx(0.1, rel=0.02)


def test_a_stall_as_the_first_sample_is_outvoted_at_once() -> None:
    assert table((1, 0, 0.1), (1, 0, 1.0), (1, 0, 0.1), (1, 0, 0.1)).seconds(1, 0) == pytest.approx(
        0.1, rel=0.1
    )


def test_seconds_that_say_nothing_are_not_kept() -> None:
    for nothing in (None, 0.0, -1.0, float("nan"), float("inf")):
        assert table(*[(1, 0, nothing)] * 5).seconds(1, 0) == 0


def test_a_context_that_grows_is_followed() -> None:
    made = table(*[(1, 2, 0.1)] * 30, *[(1, 2, 0.15)] * 25)
    assert made.seconds(1, 2) == pytest.approx(0.15, rel=0.05)


def test_old_figures_give_way_to_few_new_ones() -> None:
    made = table(*[(1, 2, 0.1)] * 10, *[(1, 0, 0.08)] * 400, *[(1, 2, 0.2)] * 5)
    assert made.seconds(1, 2) > 0.17


def test_figures_become_stale() -> None:
    made = table(*[(1, 2, 0.1)] * 4, *[(1, 0, 0.08)] * 501)
    assert made.stale(1, 2)
    assert not made.stale(1, 0)
    assert not made.stale(4, 4)


def test_noise_settles_near_the_middle() -> None:
    noise = random.Random(4)
    made = table(*[(1, 1, 0.1 * (0.8 + 0.4 * noise.random())) for _ in range(40)])
    assert made.seconds(1, 1) == pytest.approx(0.1, rel=0.08)


def test_the_lower_median_takes_the_lower_of_two_and_weighs() -> None:
    assert lower_median([(10.0, 1.0), (1.0, 1.0)]) == 1.0
    assert lower_median([(1.0, 0.2), (2.0, 1.0), (3.0, 0.2)]) == 2.0
    with pytest.raises(ValueError, match="nothing"):
        lower_median([])


def test_nothing_timed_is_nothing_known() -> None:
    assert Fit({}).seconds((1, 1)) == 0


@pytest.mark.parametrize("curve", CURVES)
def test_a_few_shapes_tell_of_those_between_and_beyond(curve: str) -> None:
    law = CURVES[curve]
    fit = Fit({shape: (law(*shape), 20) for shape in [(1, 0), (1, 1), (1, 3), (4, 0), (4, 2)]})
    for shape in [(1, 2), (2, 1), (4, 1), (4, 3)]:
        assert fit.seconds(shape) == pytest.approx(law(*shape), rel=0.12)


def test_a_shape_nobody_timed_costs_no_less_than_a_narrower_and_no_more_than_a_wider_one() -> None:
    fit = Fit({(1, 1): (0.2, 9), (1, 3): (0.21, 9), (8, 0): (0.1, 9)})
    assert 0.2 <= fit.seconds((1, 2)) <= 0.21
    assert fit.seconds((1, 0)) <= 0.2
    assert fit.seconds((1, 6)) >= 0.21


def test_a_shape_of_its_own_beats_the_line_through_the_others() -> None:
    """Kernels change with the shape: a dear one stays dear however cheap its neighbours are."""
    calls = [(1, width, seconds) for width, seconds in ((0, 0.1), (1, 0.11), (2, 0.3), (3, 0.13))]
    made = table(*[call for call in calls for _ in range(30)])
    assert made.seconds(1, 2) == pytest.approx(0.3, rel=0.12)
    assert made.seconds(1, 1) == pytest.approx(0.11, rel=0.12)


def test_rounds_until_a_shape_is_known() -> None:
    made = table((1, 0, 0.1), (1, 0, 0.1))
    assert not made.known(1, 0)
    for _ in range(made.calls_to_know(1, 0)):
        made.see(1, 0, measured(1, 0))
    assert made.known(1, 0)
