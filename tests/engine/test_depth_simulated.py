"""The depth controller against texts and machines that are only numbers: near the best fixed depth, whatever these are.

Every machine has noise of ±20 %, stalls of ten times a round, and first calls of a shape that take very long.
"""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from mtplxd.engine.depth import DepthController
from support.depth_sim import (
    CHAT,
    CODE,
    CURVES,
    DEAD,
    DEPTH_MAX,
    PROSE,
    Chances,
    Curve,
    Machine,
    Texts,
    best_rate,
    measured,
    play,
    rate,
)

KINDS: dict[str, Chances] = {"code": CODE, "chat": CHAT, "prose": PROSE, "dead": DEAD}
WIDTHS = (1, 2, 4, 8)
ROUNDS = 400


def machine(curve: Curve, rows: int, seed: int) -> Machine:
    cold = 0.125 if curve is measured else 3 * curve(rows, 3)
    return Machine(curve, random.Random(seed), noise=0.2, stalls=0.02, cold=max(cold, curve(rows, 3)))


def shares(texts: Texts, curve: Curve, rows: int, seeds: range) -> tuple[float, float]:
    """Means of what was reached of the best fixed depth's tokens a second, from a cold start and afterwards."""
    cold, warm = [], []
    for seed in seeds:
        clock, controller = machine(curve, rows, seed), DepthController(DEPTH_MAX)
        best = best_rate(texts, curve, rows)
        for found, first in ((cold, 0), (warm, ROUNDS)):
            played = play(controller, texts, clock, rows, ROUNDS, first)
            found.append(played.expected / played.seconds / best)
    return fmean(cold), fmean(warm)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("curve", ["measured", "flat"])
def test_from_a_cold_start_little_is_lost_and_less_later(curve: str, kind: str) -> None:
    cold, warm = zip(
        *(shares(lambda *_: KINDS[kind], CURVES[curve], rows, range(2)) for rows in WIDTHS), strict=True
    )
    assert fmean(cold) >= 0.975
    assert min(cold) >= 0.955
    assert fmean(warm) >= 0.98
    assert min(warm) >= 0.97


@pytest.mark.parametrize("kind", KINDS)
def test_where_drafting_costs_as_much_as_it_gives_plain_decoding_is_found(kind: str) -> None:
    cold, warm = zip(
        *(shares(lambda *_: KINDS[kind], CURVES["steep"], rows, range(2)) for rows in WIDTHS), strict=True
    )
    assert fmean(cold) >= 0.955
    assert fmean(warm) >= 0.97


@pytest.mark.parametrize("curve", ["measured", "flat"])
def test_rows_of_different_texts_get_the_depth_that_pays_for_all_together(curve: str) -> None:
    def texts(row: int, _round: int) -> Chances:
        return (CODE, CHAT, PROSE, DEAD)[row % 4]

    for rows in (4, 8):
        cold, warm = shares(texts, CURVES[curve], rows, range(5))
        assert cold >= 0.97
        assert warm >= 0.975


def test_a_dead_head_is_given_up_and_hardly_ever_tried_again() -> None:
    for rows in WIDTHS:
        controller, clock = DepthController(DEPTH_MAX), machine(measured, rows, 5)
        play(controller, lambda *_: DEAD, clock, rows, 100)
        played = play(controller, lambda *_: DEAD, clock, rows, 300, 100)
        assert 0 < sum(width > 0 for width in played.widths) <= 300 * 0.08


def test_the_best_depth_is_the_one_mostly_played() -> None:
    controller, clock = DepthController(DEPTH_MAX), machine(measured, 2, 1)
    texts: Texts = lambda *_: CHAT  # noqa: E731
    play(controller, texts, clock, 2, ROUNDS)
    played = play(controller, texts, clock, 2, ROUNDS, ROUNDS)
    usual = max(set(played.widths), key=played.widths.count)
    assert rate(texts, measured, 2, usual) >= 0.97 * best_rate(texts, measured, 2)


def test_tries_lose_a_bounded_share_even_where_each_is_dear() -> None:
    controller, clock = DepthController(DEPTH_MAX), machine(CURVES["steep"], 4, 2)
    play(controller, lambda *_: DEAD, clock, 4, 200)
    played = play(controller, lambda *_: DEAD, clock, 4, 1000, 200)
    lost = 1 - played.expected / played.seconds / best_rate(lambda *_: DEAD, CURVES["steep"], 4)
    assert lost <= 0.02
