"""A text changes its kind: within 50 rounds the depth follows at every width, up and down, to plain and back."""

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
    Machine,
    best_rate,
    play,
    rate,
)

BEFORE, REACTION, AFTER = 300, 50, 30
CHANGES = {
    "collapses": (CODE, DEAD),
    "revives": (DEAD, CODE),
    "revives a little": (DEAD, CHAT),
    "rises": (CHAT, CODE),
    "falls": (CODE, PROSE),
}


def worth_after(change: tuple[Chances, Chances], curve: str, rows: int, seed: int) -> float:
    """What the widths played after the time to react are worth, of the best there is then."""

    def texts(_row: int, at: int) -> Chances:
        return change[at >= BEFORE]

    clock = Machine(CURVES[curve], random.Random(seed), noise=0.2, stalls=0.02)
    controller = DepthController(DEPTH_MAX)
    play(controller, texts, clock, rows, BEFORE + REACTION)
    played = play(controller, texts, clock, rows, AFTER, BEFORE + REACTION)
    usual = max(set(played.widths), key=played.widths.count)
    at = BEFORE + REACTION
    return rate(texts, CURVES[curve], rows, usual, at) / best_rate(texts, CURVES[curve], rows, at)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_the_depth_follows_the_text_within_fifty_rounds(change: str, rows: int) -> None:
    for curve in ("measured", "flat"):
        worth = [worth_after(CHANGES[change], curve, rows, seed) for seed in range(4)]
        assert fmean(worth) >= 0.92, (curve, worth)
        assert sorted(worth)[1] >= 0.85, (curve, worth)


@pytest.mark.parametrize("rows", [1, 8])
def test_a_new_text_beside_others_starts_as_the_pack_usually_does(rows: int) -> None:
    clock = Machine(CURVES["measured"], random.Random(3), noise=0.2)
    controller = DepthController(DEPTH_MAX)
    play(controller, lambda *_: CODE, clock, rows, 200)
    for row in range(rows):
        controller.forget(str(row))
    played = play(controller, lambda *_: CODE, clock, rows, 10, 200)
    assert min(played.widths) >= 3
