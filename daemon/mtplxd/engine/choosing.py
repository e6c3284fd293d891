"""Asks the depth controller for a batch's next round, and tells it what became of each."""

from __future__ import annotations

from collections.abc import Sequence

from mtplxd.engine.depth import DepthController, DraftRoom, RoundSeen, RowSeen
from mtplxd.engine.round import Landing
from mtplxd.engine.stream import Stream


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
