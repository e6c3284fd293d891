"""Rows of a measurement against brute force in numpy, and what happens where something was not measured."""

from __future__ import annotations

import numpy as np
import pytest
from mtplxd.engine.events import Stats
from mtplxd.tune.summary import Row, Run, summarise


def random_runs(seed: int, prompts: int = 7, depths: tuple[int, ...] = (0, 1, 2, 3)) -> list[Run]:
    rng = np.random.default_rng(seed)
    runs = []
    for prompt in range(prompts):
        for depth in rng.permutation(depths).tolist():
            judged = np.sort(rng.integers(5, 40, depth))[::-1]
            accepted = [int(rng.integers(0, count + 1)) for count in judged]
            first = float(rng.uniform(0.1, 2.0))
            stats = Stats(
                rounds=int(rng.integers(20, 60)),
                accepted_by_position=tuple(accepted),
                judged_by_position=tuple(map(int, judged)),
            )
            last = first + float(rng.uniform(1.0, 5.0))
            runs.append(
                Run(prompt, depth, int(rng.integers(60, 128)), first, last, stats, rng.uniform(20, 60))
            )
    return runs


def row_of(runs: list[Run], depth: int) -> Row:
    return next(row for row in summarise(runs) if row.depth == depth)


@pytest.mark.parametrize("seed", range(5))
def test_every_number_of_a_row_equals_brute_force(seed: int) -> None:
    runs = random_runs(seed)
    for row in summarise(runs):
        mine = [run for run in runs if run.depth == row.depth]
        speed = {run.prompt: (run.tokens - 1) / (run.last_s - run.first_s) for run in mine}
        plain = {run.prompt: (run.tokens - 1) / (run.last_s - run.first_s) for run in runs if run.depth == 0}
        assert row.tok_s == pytest.approx(np.median(list(speed.values())))
        assert row.ratio_vs_plain == pytest.approx(np.median([speed[p] / plain[p] for p in speed]))
        assert row.tokens_per_round == pytest.approx(
            np.sum([run.tokens for run in mine]) / np.sum([run.stats.rounds for run in mine])
        )
        accepted = np.array([run.stats.accepted_by_position for run in mine]).sum(axis=0)
        judged = np.array([run.stats.judged_by_position for run in mine]).sum(axis=0)
        assert row.acceptance_by_position == pytest.approx(tuple(accepted / judged) if row.depth else ())
        means = [1e3 * (run.last_s - run.first_s) / (run.stats.rounds - 1) for run in mine]
        assert row.round_ms == pytest.approx(np.median(means))
        assert row.ideal_round_ms == pytest.approx(np.median([run.ideal_round_ms for run in mine]))
        shares = [run.ideal_round_ms / mean for run, mean in zip(mine, means, strict=True)]
        assert row.efficiency == pytest.approx(np.median(shares))
        assert (row.rounds, row.runs) == (sum(run.stats.rounds for run in mine), len(mine))


def test_rows_come_shallowest_first_whatever_the_order_of_the_runs() -> None:
    runs = random_runs(1)
    assert [row.depth for row in summarise(runs)] == [0, 1, 2, 3]
    assert summarise(runs) == summarise(runs[::-1])


def test_the_plain_row_is_its_own_measure() -> None:
    assert row_of(random_runs(2), 0).ratio_vs_plain == 1.0


def test_without_plain_answers_no_ratio_is_told() -> None:
    runs = [run for run in random_runs(3) if run.depth]
    assert [row.ratio_vs_plain for row in summarise(runs)] == [0.0, 0.0, 0.0]
    assert all(row.tok_s > 0 for row in summarise(runs))


def test_a_ratio_pairs_prompts_and_never_mixes_them() -> None:
    def run(prompt: int, depth: int, seconds: float) -> Run:
        return Run(prompt, depth, 101, 0.0, seconds, Stats(rounds=50))

    # prompt 0 twice as fast as plain, prompt 1 too, though it is five times slower altogether
    runs = [run(0, 0, 2.0), run(0, 1, 1.0), run(1, 0, 10.0), run(1, 1, 5.0)]
    assert row_of(runs, 1).ratio_vs_plain == pytest.approx(2.0)
    # a prompt without its plain answer counts for the speed and not for the ratio
    runs.append(run(2, 1, 100.0))
    assert row_of(runs, 1).ratio_vs_plain == pytest.approx(2.0)


def test_positions_never_judged_count_neither_way() -> None:
    runs = [
        Run(0, 2, 20, 0.0, 1.0, Stats(rounds=10, accepted_by_position=(6, 2), judged_by_position=(10, 8))),
        Run(1, 2, 20, 0.0, 1.0, Stats(rounds=3, accepted_by_position=(1, 0), judged_by_position=(2, 0))),
    ]
    assert row_of(runs, 2).acceptance_by_position == pytest.approx((7 / 12, 2 / 8))


def test_an_answer_of_one_round_has_no_speed_and_spoils_no_median() -> None:
    whole = Run(0, 1, 50, 0.5, 2.5, Stats(rounds=26), ideal_round_ms=40.0)
    burst = Run(1, 1, 2, 0.5, 0.5, Stats(rounds=1), ideal_round_ms=40.0)
    row = row_of([whole, burst], 1)
    assert row.tok_s == pytest.approx(49 / 2)
    assert row.round_ms == pytest.approx(1e3 * 2 / 25)
    assert row.runs == 2


def test_an_efficiency_pairs_a_round_with_the_ideal_one_behind_it() -> None:
    def run(prompt: int, slowness: float) -> Run:
        stats = Stats(rounds=10)
        return Run(
            prompt, 1, 20, 0.0, slowness, stats, ideal_round_ms=45.0 * slowness, round_ms=50.0 * slowness
        )

    # the machine slowed down between the answers, and for the last one between its rounds and the ideal ones
    hurried = Run(3, 1, 20, 0.0, 1.0, Stats(rounds=10), ideal_round_ms=135.0, round_ms=50.0)
    assert row_of([run(0, 1.0), run(1, 2.0), run(2, 3.0)], 1).efficiency == pytest.approx(0.9)
    assert row_of(
        [run(0, 1.0), run(1, 2.0), run(2, 3.0), run(4, 1.5), hurried], 1
    ).efficiency == pytest.approx(0.9)


def test_without_ideal_rounds_no_efficiency_is_told() -> None:
    row = row_of([Run(0, 0, 10, 0.0, 1.0, Stats(rounds=10))], 0)
    assert (row.ideal_round_ms, row.efficiency) == (0.0, 0.0)


def test_a_round_time_that_was_given_is_taken() -> None:
    row = row_of([Run(0, 0, 10, 0.0, 1.0, Stats(rounds=10), 40.0, 50.0)], 0)
    assert row.round_ms == 50.0
    assert row.efficiency == pytest.approx(0.8)
