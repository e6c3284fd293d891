"""Plays the rounds of one batch for its streams: launches, lands, commits, and tells who has come to an end.

A round's events are sent after its successor was launched, so that the device works while the host talks. Which batch
plays when, and who is in it, is `service`'s.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from mtplxd.engine.batch import Batch
from mtplxd.engine.choosing import ChosenDepths
from mtplxd.engine.fixed_shape import room_in_block
from mtplxd.engine.round import Flight, Landing, commit, discard, land, launch, take_back
from mtplxd.engine.stopping import End
from mtplxd.engine.stream import Stream
from mtplxd.engine.uniforms import RoundUniforms
from mtplxd.families.caches import without
from mtplxd.platform.mlx import Array, mx

log = logging.getLogger(__name__)

SPANS = 15
"""Rounds that the median round is taken from."""
BROKEN = End("error", "internal", "the engine met an error of its own: see `mtplx logs`, then try again")


@dataclass(slots=True)
class Ended:
    """A stream that came to its end in a turn; its row is still in the batch."""

    stream: Stream
    end: End


class Player:
    """One batch and its streams, which stand in the same order.

    A round's seconds are those between two landings. They tell what a round takes only where as much was launched
    early before it as behind it: of plain rounds in a row the first seems to take two, and the last none.
    """

    def __init__(self, batch: Batch, streams: Sequence[Stream], depths: ChosenDepths) -> None:
        self.batch = batch
        self.streams = list(streams)
        self._depths = depths
        self._flight: Flight | None = None
        self._early = False
        self._planned: list[int] | None = None
        self._landed: float | None = None
        self._spans: deque[float] = deque(maxlen=SPANS)

    @property
    def round_s(self) -> float | None:
        """Median seconds of the latest rounds; None before one was timed."""
        return median(self._spans) if self._spans else None

    @property
    def _form(self) -> str:
        return "" if self.batch.width is None else "fixed"

    @property
    def in_flight(self) -> bool:
        """Whether a round was launched that nobody has landed."""
        return self._flight is not None

    def join(self, stream: Stream, batch: Batch) -> None:
        """Takes in one more row, between rounds: nothing may be in flight."""
        if self._flight is not None:
            raise RuntimeError("a row cannot join a round in flight")
        self.batch.join(batch)
        self.streams.append(stream)
        self._forget_plan()

    def leave(self, stream: Stream) -> None:
        """Lets a row go, its part of a round in flight with it; as in the batch, the last takes its place."""
        place = self.streams.index(stream)
        self.batch.leave(place)
        if self._flight:
            self._flight.leave(place)
        self.streams = without(self.streams, place)
        self._depths.forget(stream)
        self._forget_plan()

    def copy_out(self, stream: Stream) -> Batch:
        """A batch of one row as it stands, its caches evaluated; nothing may be in flight."""
        copied = self.batch.copy_row(self.streams.index(stream))
        mx.eval([layer.state for layer in (*copied.cache, *copied.head_cache)])
        return copied

    def pause(self) -> None:
        """Something else has the device for a while: the next round's time says nothing of rounds."""
        self._landed = None

    def stop(self) -> None:
        """Takes back what is in flight: nothing goes on from here."""
        if self._flight:
            self._drop(self._flight)
            self._flight = None

    def turn(self, go_on: bool) -> list[Ended]:
        """One round. With `go_on` its successor may be in flight afterwards; rows that leave then leave it, too.

        Ended streams have been sent everything but their end; their rows still stand in the batch.
        """
        try:
            return self._turn(go_on)
        except Exception as error:  # a fault in a shared round is some row's: it must end alone
            log.exception("a round of %d rows failed", len(self.streams))
            self._flight = self._planned = self._landed = None
            take_back(self.batch)
            if len(self.streams) == 1:
                return [Ended(self.streams[0], BROKEN)]
            return self._turn_apart(error)

    def _turn(self, go_on: bool) -> list[Ended]:
        begun = self._landed if self._flight else time.perf_counter()
        early = self._flight is not None and self._early
        flight = self._flight or self._launch()
        self._flight, self._early = None, False
        ahead = self._launch_ahead(flight) if go_on else None
        paired = early == (ahead is not None)
        for stream in self.streams:
            stream.prepare(flight.depth, self.batch.target.vocab_size)
        landings = land(self.batch, flight)
        seconds = self._note_time(begun)
        if ahead and any(landing.redone or landing.broken for landing in landings):
            self._drop(ahead)
            ahead = None
        kept, ends = self._take(landings)
        commit(self.batch, flight, landings, kept, ahead=1 if ahead else 0)
        self._depths.observe(self.streams, landings, kept, seconds if paired else None, self._form)
        ended = [Ended(stream, end) for stream, end in zip(self.streams, ends, strict=True) if end]
        if ahead or (go_on and not ended):
            self._flight, self._early = ahead or self._launch(), ahead is not None
        return [*ended, *self._send(besides=[one.stream for one in ended])]

    def _send(self, besides: Sequence[Stream]) -> list[Ended]:
        """Tells each stream's owner; those whose text cannot be told have come to their end, `besides` apart."""
        broken = []
        for stream in self.streams:
            try:
                stream.send()
            except Exception:  # a tokenizer may break on one text; what the round made stands
                log.exception("request %s failed", stream.request.id)
                if stream not in besides:
                    broken.append(Ended(stream, BROKEN))
        return broken

    def _take(self, landings: Sequence[Landing]) -> tuple[list[int], list[End | None]]:
        kept, ends = [], []
        for stream, landing in zip(self.streams, landings, strict=True):
            try:
                count, end = stream.take(landing)
            except Exception:  # a tokenizer or a grammar may break on one text
                log.exception("request %s failed", stream.request.id)
                count, end = 0, BROKEN
            kept.append(count)
            ends.append(end or stream.cancelled())
        return kept, ends

    def _launch(self, last: Array | None = None) -> Flight:
        lengths = self._planned or self._depths.choose(self.streams, self._form)
        self._planned = None
        ahead = last is not None
        lengths = [
            self._bound(stream, length, ahead) for stream, length in zip(self.streams, lengths, strict=True)
        ]
        rows = self.batch.rows
        source = RoundUniforms(
            [stream.supply for stream in self.streams],
            [row.round for row in rows],
            [len(row.tokens) + ahead for row in rows],
        )
        for row in rows:
            row.round += 1
        return launch(self.batch, source, lengths, last)

    def _bound(self, stream: Stream, length: int, ahead: bool) -> int:
        """Drafts that could still be kept."""
        length = min(length, stream.row.depth, stream.left - ahead - 1)
        if self.batch.width is not None:
            length = min(length, room_in_block(len(stream.row.tokens)))
        return max(0, length)

    def _launch_ahead(self, flight: Flight) -> Flight | None:
        """At depth 0 the next round needs nothing from this one that the host must see first.

        A grammar must see the token, and one shape for all forwards leaves no slot for a second one.
        """
        if flight.depth or self.batch.width is not None:
            return None
        if any(stream.row.matcher is not None or stream.left < 2 for stream in self.streams):
            return None
        self._planned = self._planned or self._depths.choose(self.streams, self._form)
        if any(self._planned):
            return None
        return self._launch(flight.tokens)

    def _drop(self, ahead: Flight) -> None:
        """Takes back a successor that turned out to build on nothing."""
        discard(self.batch, ahead)
        for row in self.batch.rows:
            row.round -= 1

    def _note_time(self, begun: float | None) -> float | None:
        """Seconds the round took; None where it was in flight while something else had the device."""
        self._landed = time.perf_counter()
        if begun is None:
            return None
        self._spans.append(self._landed - begun)
        return self._spans[-1]

    def _forget_plan(self) -> None:
        self._planned = self._landed = None

    def _turn_apart(self, error: Exception) -> list[Ended]:
        """Plays the failed round once more, each row alone; the rows that fail again have come to their end."""
        log.warning("each row goes on alone for a round after %s", type(error).__name__)
        alone = [
            Player(self.batch.copy_row(place), [stream], self._depths)
            for place, stream in enumerate(self.streams)
        ]
        ended = [end for player in alone for end in player.turn(go_on=False)]
        self.batch = alone[0].batch
        for player in alone[1:]:
            self.batch.join(player.batch)
        return ended
