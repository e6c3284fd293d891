"""Asks the depth controller for a batch's next round, and tells it what became of each.

A controller lives and goes with its model in memory. What it decides is `depth`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mtplxd.engine.depth import DepthController, DraftRoom, RoundSeen, RowSeen
from mtplxd.engine.round import Landing
from mtplxd.engine.stream import Stream

if TYPE_CHECKING:
    from mtplxd.families.load import LoadedModel


class ChosenDepths:
    """Depths of one model's rows: what a request asked for, or what the controller thinks pays."""

    def __init__(self, controller: DepthController) -> None:
        self.controller = controller

    def choose(self, streams: Sequence[Stream], form: str) -> list[int]:
        """Drafts of each row in the round to come."""
        rooms = [
            DraftRoom(
                stream.request.id,
                min(stream.row.depth, max(stream.left - 1, 0)),
                None if stream.row.auto else stream.row.depth,
            )
            for stream in streams
        ]
        return self.controller.choose(rooms, form)

    def observe(
        self,
        streams: Sequence[Stream],
        landings: Sequence[Landing],
        kept: Sequence[int],
        seconds: float | None,
        form: str,
    ) -> None:
        """A round that was played; `seconds` is None where something else came between."""
        rows = tuple(
            RowSeen(stream.request.id, landing.drafted, landing.decided(count), landing.accepted)
            for stream, landing, count in zip(streams, landings, kept, strict=True)
        )
        self.controller.observe(RoundSeen(rows, seconds, form))

    def forget(self, stream: Stream) -> None:
        """A text has ended."""
        self.controller.forget(stream.request.id)


def controller_of(model: LoadedModel, start: int = 1) -> DepthController:
    """A model's controller, made when it is first asked for; `start` is where one that knows nothing begins."""
    if not isinstance(model.depths, DepthController):
        model.depths = DepthController(model.depth_max, start=start)
    return model.depths


def depths_of(model: LoadedModel) -> ChosenDepths:
    """Who chooses the depths of a model's rounds, with all that was learnt of them."""
    return ChosenDepths(controller_of(model))
