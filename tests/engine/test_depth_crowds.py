"""Crowds that come and go: `auto` reaches what the best fixed depth does, whoever was there before.

No single crowd is judged: how a text happens to be accepted moves one by more than what is asked for.
"""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from mtplxd.engine.depth import DepthController
from support.depth_crowds import SUITES, Crowd, round_seconds
from support.depth_sim import DEPTH_MAX, Machine

CLIENTS = (1, 2, 4, 8)
SEEDS = range(6)
FIXED = (0, 1, 2, 3)


def a_machine(seed: int) -> Machine:
    return Machine(round_seconds, random.Random(seed), noise=0.08, stalls=0.01, cold=0.5)


def best_fixed(kind: str, clients: int) -> float:
    def reached(depth: int) -> float:
        played = (
            Crowd(kind, clients, random.Random(seed)).play(DepthController(DEPTH_MAX), a_machine(seed), depth)
            for seed in range(3 * len(SEEDS))
        )
        return fmean(played)

    return max(reached(depth) for depth in FIXED)


def of_the_best(kind: str, clients: int) -> float:
    """Mean of two crowds one after the other, the first of a pack that nothing is known of."""
    reached = []
    for seed in SEEDS:
        controller, machine = DepthController(DEPTH_MAX), a_machine(seed)
        for turn in (100, 200):
            reached.append(Crowd(kind, clients, random.Random(turn + seed)).play(controller, machine))
    return fmean(reached) / best_fixed(kind, clients)


@pytest.mark.parametrize("kind", SUITES)
def test_crowds_reach_what_they_would_at_the_best_fixed_depth(kind: str) -> None:
    shares = [of_the_best(kind, clients) for clients in CLIENTS]
    assert fmean(shares) >= 0.975
    assert min(shares) >= 0.95


def test_numbers_of_rows_that_only_pass_by_are_hardly_ever_tried_on() -> None:
    """While clients come and go each number of rows is there for a few rounds, too few to pay for what tries lose."""
    tried = rounds = 0
    for seed in range(4):
        controller, crowd = DepthController(DEPTH_MAX), Crowd("chat", 8, random.Random(seed))
        crowd.play(controller, a_machine(seed))
        passing = [width for rows, width in crowd.shapes if 1 < rows < 8]
        usual = {rows: max(set(w), key=w.count) for rows, w in by_rows(crowd.shapes).items()}
        tried += sum(width != usual[rows] for rows, width in crowd.shapes if 1 < rows < 8)
        rounds += len(passing)
    assert tried <= 0.15 * rounds


def by_rows(shapes: list[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for rows, width in shapes:
        found.setdefault(rows, []).append(width)
    return found


def test_what_a_shape_takes_is_looked_at_again_after_as_many_rounds_of_such_rows() -> None:
    """A service of eight rows does not make what one row takes unknown, and back."""
    controller, machine = DepthController(DEPTH_MAX), a_machine(3)
    Crowd("chat", 1, random.Random(0)).play(controller, machine)
    for turn in range(14):
        Crowd("chat", 8, random.Random(turn)).play(controller, machine)
    table = controller._table("")
    assert not [width for width in range(3) if table.stale(1, width)]
