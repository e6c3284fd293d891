"""Which rounds tell what a round takes: those that were launched as early as the ones behind them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from mtplxd.engine.batch import open_batch
from mtplxd.engine.choosing import ChosenDepths
from mtplxd.engine.depth import DepthController, DraftRoom, RoundSeen
from mtplxd.engine.player import Player
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.stream import Stream
from mtplxd.families.load import LoadedModel
from support.listening import ask


class Scripted(DepthController):
    """Depths by a script; keeps what it is told of rounds."""

    def __init__(self, script: list[int]) -> None:
        super().__init__(8)
        self.script, self.seen = script, list[tuple[int, bool]]()

    def choose(self, rows: Sequence[DraftRoom], form: str = "") -> list[int]:  # noqa: ARG002 - the same for all
        return [self.script.pop(0)] * len(rows)

    def observe(self, seen: RoundSeen) -> None:
        self.seen.append((seen.width, seen.seconds is not None))


def play(model: LoadedModel, script: list[int], rounds: int, go_on: bool = True) -> list[tuple[int, bool]]:
    request = ask(model, [5, 6, 7], depth=2, max_tokens=60, ignore_eos=True, sampler=SamplerSettings(0.0))
    batch, controller = open_batch(request), Scripted(script)
    prefill = Prefill(batch, request.prompt)
    while not prefill.finished:
        prefill.step()
    stream = Stream(request, batch.rows[0], lambda _: None, lambda: None, 0.0)
    player = Player(batch, [stream], ChosenDepths(controller))
    for _ in range(rounds):
        assert player.turn(go_on) == []
    player.stop()
    return controller.seen


def test_of_plain_rounds_between_drafting_ones_the_first_and_last_tell_nothing(
    tiny_model: LoadedModel,
) -> None:
    seen = play(tiny_model, [1, 1, 0, 0, 0, 0, 2, 2, 0, 1, 1, 1], 11)
    assert seen == [
        (1, True), (1, True), (0, False), (0, True), (0, True), (0, False), (2, True), (2, True),
        (0, True), (1, True), (1, True),
    ]  # fmt: skip


@pytest.mark.parametrize("depth", [0, 1])
def test_rounds_that_are_not_followed_at_once_all_tell(tiny_model: LoadedModel, depth: int) -> None:
    assert play(tiny_model, [depth] * 5, 4, go_on=False) == [(depth, True)] * 4
