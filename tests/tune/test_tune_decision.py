"""The verdict over synthetic rows: winners, ties, noise, a head that cannot help, a machine that drifts."""

from __future__ import annotations

import random
from math import exp

import pytest
from mtplxd.tune.decision import COLLAPSED, TuneRow, decide
from mtplxd.tune.drift import Drift, drift_of
from mtplxd.tune.intervals import compare
from mtplxd.tune.outcome import Kept, say_outcome
from mtplxd.tune.plan import AUTO

STEADY = drift_of([10.0, 9.8, 10.1], [0.0, 60.0, 120.0])
SLOWED = drift_of([10.0, 9.4, 8.8], [0.0, 60.0, 120.0])


def plain_speeds(noise: float = 0.0, seed: int = 0, count: int = 8) -> dict[int, float]:
    draw = random.Random(f"plain {seed}")
    return {at: 10 * exp(draw.gauss(0, noise)) for at in range(count)}


def a_row(
    depth: int,
    ratio: float,
    noise: float = 0.0,
    seed: int = 0,
    acceptance: float = 0.6,
    plain: dict[int, float] | None = None,
) -> TuneRow:
    draw = random.Random(f"{depth} {seed}")
    base = plain_speeds() if plain is None else plain
    made = {at: 10 * ratio * exp(draw.gauss(0, noise)) for at in base}
    return TuneRow(
        depth=depth,
        tok_s=10 * ratio,
        interval=compare(made, base),
        tokens_per_round=1.0,
        acceptance_by_position=(acceptance,) if depth else (),
        round_ms=100.0,
        rounds=100,
        speeds=made,
    )


def rows(*ratios: float, noise: float = 0.0, seed: int = 0, acceptance: float = 0.6) -> list[TuneRow]:
    """Plain decoding and depths from 1 on."""
    plain = plain_speeds(noise, seed)
    return [
        a_row(0, 1.0, plain=plain),
        *(a_row(depth, ratio, noise, seed, acceptance, plain) for depth, ratio in enumerate(ratios, 1)),
    ]


def test_the_fastest_of_sure_winners_is_chosen() -> None:
    found = decide(rows(1.2, 1.4, 1.3), STEADY)
    assert (found.verdict, found.depth) == ("depth_wins", 2)
    assert found.message.startswith("depth 2 decodes at 1.40 × plain (95 % sure: 1.40 to 1.40)")


@pytest.mark.parametrize(("deeper", "winner"), [(1.222, 1), (1.216, 1), (1.23, 2), (1.1, 1)])
def test_within_two_per_cent_is_a_tie_and_the_shallower_is_kept(deeper: float, winner: int) -> None:
    assert decide(rows(1.2, deeper), STEADY).depth == winner


def test_a_deeper_depth_that_is_faster_by_chance_is_not_preferred() -> None:
    plain = plain_speeds()
    shallow, deep = a_row(1, 1.30, plain=plain), a_row(2, 1.40, 0.15, 4, plain=plain)
    assert deep.interval is not None
    assert deep.interval.ratio > 1.30 * 1.02
    assert decide([a_row(0, 1.0), shallow, deep], STEADY).depth == 1


def test_small_steps_do_not_add_up_to_a_tie() -> None:
    """Each depth is a tie with the one before; the third is none with the first."""
    assert decide(rows(1.2, 1.218, 1.236), STEADY).depth == 3


def test_a_winner_that_is_deeper_than_a_loser_is_chosen() -> None:
    assert decide(rows(0.9, 1.3), STEADY).depth == 2


@pytest.mark.parametrize(("ratio", "winner"), [(1.3, AUTO), (1.21, 1)])
def test_auto_is_the_deepest(ratio: float, winner: int) -> None:
    measured = rows(1.2)
    assert decide([*measured, a_row(AUTO, ratio)], STEADY).depth == winner


def test_noise_alone_wins_no_more_often_than_its_intervals_say() -> None:
    """Three depths that are as fast as plain decoding, 200 times: each has 1 in 40 of looking faster."""
    wins = sum(
        decide(rows(1.0, 1.0, 1.0, noise=0.05, seed=seed), STEADY).depth is not None for seed in range(200)
    )
    assert wins <= 200 * 3 * 0.04


def test_a_set_of_noise_whose_best_is_above_one_is_no_winner() -> None:
    measured = rows(1.0, 1.0, 1.0, noise=0.05, seed=1)
    best = max(row.interval.ratio for row in measured[1:] if row.interval)
    assert best > 1.0
    found = decide(measured, STEADY)
    assert (found.verdict, found.depth) == ("no_depth_beats_plain", None)
    assert "may be chance" in found.message


def test_depths_that_are_slower_are_said_to_be() -> None:
    found = decide(rows(0.8, 0.7), STEADY)
    assert found.verdict == "no_depth_beats_plain"
    assert "the best, depth 1, is 0.80 × plain" in found.message


def test_a_head_that_cannot_help_never_wins_however_fast_it_looks() -> None:
    found = decide(rows(1.5, 1.4, acceptance=COLLAPSED), STEADY)
    assert (found.verdict, found.depth) == ("acceptance_collapsed", None)
    assert "5%" in found.message


def test_one_depth_that_collapsed_leaves_the_others() -> None:
    plain = plain_speeds()
    measured = [a_row(0, 1.0), a_row(1, 1.5, acceptance=0.01, plain=plain), a_row(2, 1.2, plain=plain)]
    assert decide(measured, STEADY).depth == 2


def test_auto_that_never_drafted_is_plain_decoding() -> None:
    auto = a_row(AUTO, 1.3)
    never = TuneRow(AUTO, auto.tok_s, auto.interval, 1.0, (), 100.0, 100, auto.speeds)
    assert decide([*rows(0.9), never], STEADY).verdict == "no_depth_beats_plain"


@pytest.mark.parametrize(
    "measured", [rows(1.4)[1:], rows(1.4)[:1], [a_row(0, 1.0), TuneRow(1, 0, None, 0, (), 0, 0)]]
)
def test_nothing_is_decided_without_both_sides(measured: list[TuneRow]) -> None:
    assert decide(measured, STEADY).verdict == "no_baseline"


def test_a_machine_that_drifts_decides_nothing_unless_that_is_accepted() -> None:
    found = decide(rows(1.4), SLOWED)
    assert (found.verdict, found.depth) == ("throttled", None)
    assert "from 10.0 to 8.8 tok/s" in found.message
    assert decide(rows(1.4), SLOWED, accept_throttled=True).depth == 1


@pytest.mark.parametrize(
    ("speeds", "change", "held", "throttled"),
    [
        ([10.0, 10.0, 10.0], 0.0, 120.0, False),
        ([10.0, 9.0, 9.1], -0.1, 120.0, False),
        ([10.0, 8.9, 9.9], -0.11, 0.0, True),
        ([10.0, 9.5, 8.0], -0.2, 60.0, True),
        ([10.0, 10.5, 11.5], 0.15, 60.0, True),
        ([0.0, 10.0, 10.0], 0.0, 0.0, False),
    ],
)
def test_drift_is_the_furthest_from_the_start(
    speeds: list[float], change: float, held: float, throttled: bool
) -> None:
    drift = drift_of(speeds, [0.0, 60.0, 120.0])
    assert drift.change == pytest.approx(change)
    assert (drift.held_s, drift.throttled) == (held, throttled)
    assert Drift(()).change == 0.0


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (Kept(saved=True), "saved: requests that name no depth use it"),
        (Kept(asked=False), "not saved, as asked"),
        (Kept(), "it could not be saved, see `mtplx logs`"),
    ],
)
def test_a_winner_s_sentence_says_what_became_of_it(kept: Kept, said: str) -> None:
    assert say_outcome(decide(rows(1.4), STEADY), kept).endswith(f"; {said}")


def test_a_loser_s_sentence_says_whether_an_older_winner_went() -> None:
    lost = decide(rows(0.9), STEADY)
    assert say_outcome(lost, Kept()).endswith("; nothing is saved")
    assert say_outcome(lost, Kept(cleared=True)).endswith("the winner of an earlier run is cleared")
