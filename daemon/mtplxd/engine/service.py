"""What is in service: prompts being read, rows that share rounds, rows that play alone. One turn at a time, no threads.

A request is admitted, its prompt is read in chunks between rounds, then its row joins the shared rounds of its model,
or plays apart where it must: a reproducible one, whose forwards have one shape, or one of a model whose rows cannot
share. Whose turn it is, and who may come in, is `scheduling`'s to say; what a round does is `player`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.choosing import ChosenDepths
from mtplxd.engine.depth import DepthController
from mtplxd.engine.events import Finished
from mtplxd.engine.player import BROKEN, Player
from mtplxd.engine.prefill import CHUNK, FIXED_CHUNK, Prefill
from mtplxd.engine.stopping import End
from mtplxd.engine.stream import Stream
from mtplxd.engine.ticket import Ticket
from mtplxd.families.load import LoadedModel

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
    def apart(self) -> bool:
        """Whether it must not share rounds."""
        request = self.stream.request
        return request.sampler.reproducible or bool(getattr(request.model, "apart", ""))


class Service:
    """Requests on their way. Everything here happens on the engine thread."""

    def __init__(self, on_end: OnEnd, on_work: OnWork, chunk: int | None = None) -> None:
        self._on_end, self._on_work, self._chunk = on_end, on_work, chunk or CHUNK
        self._reading: list[Served] = []
        self._playing: dict[str, Served] = {}
        self._shared: dict[int, Player] = {}
        self._apart: dict[str, Player] = {}
        self._depths: dict[int, ChosenDepths] = {}
        self._last: Player | Served | None = None

    def __len__(self) -> int:
        """Requests in service."""
        return len(self._reading) + len(self._playing)

    @property
    def tickets(self) -> Iterator[Ticket]:
        """Of all requests in service."""
        for served in (*self._reading, *self._playing.values()):
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
        self._reading.append(served)
        if served.prefill.finished:
            self._seat(served)
        return True

    def turn(self, *, undisturbed: bool) -> None:
        """Reads one chunk of a prompt or plays one round.

        `undisturbed` says that nobody waits to come in: the next round may be launched ahead.
        """
        self._sweep()
        players = [*self._shared.values(), *self._apart.values()]
        if self._reading and (not players or isinstance(self._last, Player)):
            served = min(self._reading, key=lambda one: one.prefill.total - one.prefill.done)
            self._last = served
            self._read(served, players)
        elif players:
            at = players.index(self._last) + 1 if self._last in players else 0
            player = players[at % len(players)]
            self._last = player
            self._play(player, undisturbed and len(players) == 1 and not self._reading)

    def settle(self) -> None:
        """Lands what is in flight; nothing is, afterwards."""
        for player in [*self._shared.values(), *self._apart.values()]:
            if player.in_flight:
                self._play(player, go_on=False)

    def pause(self) -> None:
        """Something else has the device for a while."""
        for player in (*self._shared.values(), *self._apart.values()):
            player.pause()

    def _sweep(self) -> None:
        """Ends those that were cancelled and whose rows are not in flight."""
        for served in [*self._reading]:
            if end := served.stream.cancelled():
                self._reading.remove(served)
                self._finish(served, end)
        for served in [*self._playing.values()]:
            player = self._player_of(served)
            if not player.in_flight and (end := served.stream.cancelled()):
                self._unseat(served, player)
                self._finish(served, end)

    def _read(self, served: Served, players: list[Player]) -> None:
        for player in players:
            player.pause()
        before = served.prefill.done
        try:
            served.prefill.step(self._chunk)
        except Exception:  # one prompt's fault
            log.exception("the prompt of request %s failed", served.ticket.id)
            self._reading.remove(served)
            self._finish(served, BROKEN)
            return
        served.ticket.prefilled = served.prefill.done
        served.stream.report_prefill(served.prefill.done)
        self._on_work(served.ticket, served.prefill.done - before)
        if served.prefill.finished:
            self._seat(served)

    def _play(self, player: Player, go_on: bool) -> None:
        made = {stream.request.id: stream.made for stream in player.streams}
        for ended in player.turn(go_on):
            served = self._playing[ended.stream.request.id]
            self._unseat(served, player)
            self._finish(served, ended.end)
        for stream in player.streams:
            ticket = self._playing[stream.request.id].ticket
            self._on_work(ticket, stream.made - made[stream.request.id])

    def _seat(self, served: Served) -> None:
        """Moves a request whose prompt is read to where its rounds are played."""
        self._reading.remove(served)
        self._playing[served.ticket.id] = served
        served.stream.begin_decoding()
        served.ticket.state = "decode"
        model = served.stream.request.model
        depths = self._depths_of(model)
        if served.apart:
            self._apart[served.ticket.id] = Player(served.batch, [served.stream], depths)
        elif (player := self._shared.get(id(model))) is None:
            self._shared[id(model)] = Player(served.batch, [served.stream], depths)
        else:
            if player.in_flight:
                self._play(player, go_on=False)
            self._join(player, served)

    def _join(self, player: Player, served: Served) -> None:
        """The shared batch may have lost its last row just now."""
        if player.streams:
            player.join(served.stream, served.batch)
        else:
            model = served.stream.request.model
            self._shared[id(model)] = Player(served.batch, [served.stream], self._depths_of(model))

    def _unseat(self, served: Served, player: Player) -> None:
        del self._playing[served.ticket.id]
        player.leave(served.stream)
        if not player.streams:
            self._apart.pop(served.ticket.id, None)
            if self._shared.get(id(served.stream.request.model)) is player:
                del self._shared[id(served.stream.request.model)]

    def _finish(self, served: Served, end: End) -> None:
        try:
            finished = served.stream.finish(end)
        except Exception:  # whatever of a text breaks at its end, it ends
            log.exception("request %s failed at its end", served.ticket.id)
            served.ticket.end(BROKEN.reason, BROKEN.origin, BROKEN.message)
            finished = None
        self._on_end(served.ticket, finished)

    def _player_of(self, served: Served) -> Player:
        return self._apart.get(served.ticket.id) or self._shared[id(served.stream.request.model)]

    def _depths_of(self, model: LoadedModel) -> ChosenDepths:
        return self._depths.setdefault(id(model), ChosenDepths(DepthController(model.depth_max)))
