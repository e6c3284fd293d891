"""What is in service: prompts being read, rows that share rounds, rows that play alone. One turn at a time, no threads.

A request is admitted, its prompt is read in chunks between rounds, then its row joins the shared rounds of its model,
or plays apart where it must: a reproducible one, whose forwards have one shape, or one of a model whose rows cannot
share. Whose turn it is, and who may come in, is `scheduling`'s to say; what a round does is `player`'s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.choosing import ChosenDepths
from mtplxd.engine.chunking import ChunkSizer
from mtplxd.engine.depth import DepthController
from mtplxd.engine.events import Finished
from mtplxd.engine.player import BROKEN, Player
from mtplxd.engine.prefill import CHUNK, FIXED_CHUNK, Prefill
from mtplxd.engine.request import BACKGROUND
from mtplxd.engine.scheduling.turns import BatchView, Chunk, PrefillView, Round, Turns
from mtplxd.engine.stopping import End
from mtplxd.engine.stream import Stream
from mtplxd.engine.ticket import Ticket

log = logging.getLogger(__name__)

OnEnd = Callable[[Ticket, Finished | None], None]
"""Hears that a request is no longer in service; None where its end was not the stream's own."""
OnWork = Callable[[Ticket, int], None]
"""Hears of positions read or tokens made for a request."""


@dataclass(slots=True)
class Served:
    """A request in service. `batch` is its own row's while its prompt is read; in a player it shares another."""

    ticket: Ticket
    stream: Stream
    batch: Batch
    prefill: Prefill

    @property
    def model_name(self) -> str:
        """Names the model in memory, not the pack."""
        return f"model {id(self.stream.request.model)}"

    @property
    def batch_name(self) -> str:
        """Names the batch its rounds are played in: its model's, or its own where it must not share rounds."""
        request = self.stream.request
        apart = request.sampler.reproducible or bool(getattr(request.model, "apart", ""))
        return f"request {request.id}" if apart else self.model_name


class Service:
    """Requests on their way. Everything here happens on the engine thread."""

    def __init__(self, on_end: OnEnd, on_work: OnWork, chunk: int | None = None) -> None:
        self._on_end, self._on_work, self._chunk = on_end, on_work, chunk or CHUNK
        self._reading: dict[str, Served] = {}
        self._playing: dict[str, Served] = {}
        self._players: dict[str, Player] = {}
        self._depths: dict[str, ChosenDepths] = {}
        self._sizers: dict[str, ChunkSizer] = {}
        self._turns = Turns()

    def __len__(self) -> int:
        """Requests in service."""
        return len(self._reading) + len(self._playing)

    @property
    def tickets(self) -> Iterator[Ticket]:
        """Of all requests in service."""
        for served in (*self._reading.values(), *self._playing.values()):
            yield served.ticket

    def admit(self, ticket: Ticket) -> bool:
        """Takes a request in; False where a fault of its own ended it."""
        try:
            batch = open_batch(ticket.request)
            stream = Stream(ticket.request, batch.rows[0], ticket.send, ticket.poll, ticket.submitted)
            fixed = FIXED_CHUNK if ticket.request.sampler.reproducible else None
            served = Served(ticket, stream, batch, Prefill(batch, ticket.request.prompt, fixed))
        except Exception:  # the edge of a request: the others go on
            log.exception("request %s could not begin", ticket.id)
            ticket.end(BROKEN.reason, BROKEN.origin, BROKEN.message)
            return False
        ticket.begin(stream)
        self._reading[ticket.id] = served
        if served.prefill.finished:
            self._seat(served)
        return True

    def turn(self, *, undisturbed: bool) -> None:
        """Reads one chunk of a prompt or plays one round.

        `undisturbed` says that nobody waits to come in: the next round may be launched ahead.
        """
        self._sweep()
        turn = self._turns.choose(
            [view_prefill(served) for served in self._reading.values()],
            [BatchView(name, player.round_s) for name, player in self._players.items()],
        )
        if isinstance(turn, Chunk):
            self._read(self._reading[turn.id], turn.seconds)
        elif isinstance(turn, Round):
            alone = len(self._players) == 1 and not self._reading
            self._play(turn.id, go_on=undisturbed and alone)

    def settle(self) -> None:
        """Lands what is in flight; nothing is, afterwards."""
        for name, player in [*self._players.items()]:
            if player.in_flight:
                self._play(name, go_on=False)

    def pause(self) -> None:
        """Something else has the device for a while."""
        for player in self._players.values():
            player.pause()

    def _sweep(self) -> None:
        """Ends those that were cancelled; a round in flight lands without them."""
        for served in [*self._reading.values()]:
            if end := served.stream.cancelled():
                del self._reading[served.ticket.id]
                self._finish(served, end)
        for served in [*self._playing.values()]:
            if end := served.stream.cancelled():
                self._unseat(served)
                self._finish(served, end)

    def _read(self, served: Served, seconds: float) -> None:
        """The next chunk of a prompt, for about so many seconds."""
        self.pause()
        sizer = self._sizers.setdefault(served.model_name, ChunkSizer())
        before, begun = served.prefill.done, time.perf_counter()
        try:
            served.prefill.step(min(self._chunk, sizer.size(seconds, before)))
        except Exception:  # one prompt's fault
            log.exception("the prompt of request %s failed", served.ticket.id)
            del self._reading[served.ticket.id]
            self._finish(served, BROKEN)
            return
        done = served.ticket.prefilled = served.prefill.done
        sizer.observe(done - before, before, time.perf_counter() - begun)
        served.stream.report_prefill(done)
        self._on_work(served.ticket, done - before)
        if served.prefill.finished:
            self._seat(served)

    def _play(self, name: str, go_on: bool) -> None:
        """A round of one batch; those that came to their end leave."""
        player, begun = self._players[name], time.perf_counter()
        made = {stream.request.id: stream.made for stream in player.streams}
        ended = player.turn(go_on)
        self._turns.spent(name, time.perf_counter() - begun)
        for stream in player.streams:
            ticket = self._playing[stream.request.id].ticket
            self._on_work(ticket, stream.made - made[stream.request.id])
        for one in ended:
            served = self._playing[one.stream.request.id]
            self._unseat(served)
            self._finish(served, one.end)

    def _seat(self, served: Served) -> None:
        """Moves a request whose prompt is read to where its rounds are played."""
        del self._reading[served.ticket.id]
        name = served.batch_name
        if name in self._players and self._players[name].in_flight:
            self._play(name, go_on=False)
        self._playing[served.ticket.id] = served
        served.stream.begin_decoding()
        served.ticket.state = "decode"
        if name in self._players:  # its last row may have left just now
            self._players[name].join(served.stream, served.batch)
        else:
            depths = self._depths_of(served)
            self._players[name] = Player(served.batch, [served.stream], depths)

    def _unseat(self, served: Served) -> None:
        del self._playing[served.ticket.id]
        player = self._players[served.batch_name]
        player.leave(served.stream)
        if not player.streams:
            del self._players[served.batch_name]

    def _finish(self, served: Served, end: End) -> None:
        try:
            finished = served.stream.finish(end)
        except Exception:  # whatever of a text breaks at its end, it ends
            log.exception("request %s failed at its end", served.ticket.id)
            served.ticket.end(BROKEN.reason, BROKEN.origin, BROKEN.message)
            finished = None
        self._on_end(served.ticket, finished)

    def _depths_of(self, served: Served) -> ChosenDepths:
        depth_max = served.stream.request.model.depth_max
        return self._depths.setdefault(served.model_name, ChosenDepths(DepthController(depth_max)))


def view_prefill(served: Served) -> PrefillView:
    """A prompt as those who choose turns see it."""
    left = served.prefill.total - served.prefill.done
    return PrefillView(served.ticket.id, left, served.ticket.submitted, served.ticket.priority == BACKGROUND)
