"""What is in service: prompts being read, rows that share rounds, rows apart, rows set aside. One turn at a time.

A request is admitted, its prompt is read in chunks between rounds, then its row joins the shared rounds of its model,
or plays apart where it must. Where others wait for it, reading and joining go on in small parts. A row may be set
aside for memory or for somebody more urgent, and goes on later as if nothing had been. Whose turn it is and who has
room is policy's to say; what a round does is `player`'s. No threads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.choosing import depths_of
from mtplxd.engine.chunking import ChunkSizer
from mtplxd.engine.events import Finished
from mtplxd.engine.pacing import Pace
from mtplxd.engine.player import BROKEN, Player
from mtplxd.engine.prefill import CHUNK, Prefill
from mtplxd.engine.prefixes import Prefixes
from mtplxd.engine.recall import Recall
from mtplxd.engine.restoring import Restoring
from mtplxd.engine.room import Budget, Room
from mtplxd.engine.scheduling.preemption import Aside, Relief
from mtplxd.engine.scheduling.turns import BatchView, Chunk, Round, Turns
from mtplxd.engine.served import Served, name_of, view_prefill
from mtplxd.engine.sharing import whom_to_wait_for
from mtplxd.engine.stopping import End
from mtplxd.engine.stream import Stream
from mtplxd.engine.ticket import Ticket
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import launches_compute

log = logging.getLogger(__name__)

OnEnd = Callable[[Ticket, Finished | None], None]
"""Hears that a request is no longer in service; None where its end was not the stream's own."""
OnWork = Callable[[Ticket, int], None]
"""Hears of positions read or tokens made for a request."""
SPREAD = 6.0
"""A chunk that others wait for may take so many times what they wait at once: it is computed in parts, and longer ones
cost less a position."""
DISK_POLL_S = 0.05
"""How long nothing else is looked at where all there is waits for the disk."""
STORE_PART, STORE_S = 0.03, 0.02
"""Time between two turns for copying what the disk is to keep: in rounds of those who wait, and in seconds."""
HOPELESS = End(
    "error",
    "memory",
    "there is no memory left for this context: shorten it, unload a model, or raise --memory-budget",
)


@dataclass(frozen=True, slots=True)
class Means:
    """What a service has: places, positions of a chunk at most, bytes for contexts, what is kept of prompts."""

    max_rows: int
    chunk: int = CHUNK
    budget: Budget | None = None
    prefixes: Prefixes | None = None


class Service:
    """Requests on their way. Everything here happens on the engine thread."""

    def __init__(self, means: Means, on_end: OnEnd, on_work: OnWork) -> None:
        self._means, self._on_end, self._on_work = means, on_end, on_work
        self._room = Room(means.max_rows, means.budget, means.prefixes)
        self._reading: dict[str, Served] = {}
        self._joining: dict[str, Served] = {}
        self._playing: dict[str, Served] = {}
        self._aside: dict[str, Served] = {}
        self._players: dict[str, Player] = {}
        self._sizers: dict[str, ChunkSizer] = {}
        self._turns = Turns()
        self._played: float | None = None
        self._relief: dict[str, Relief] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes of all contexts, as of the last turn."""
        return self._room.held

    def forget(self, model: LoadedModel) -> None:
        """Drops what was learnt of the pace of a model that leaves memory: another may get its name."""
        self._sizers.pop(name_of(model), None)

    def look(self) -> None:
        """Takes in the memory there is; before `fits`, and with no lock held."""
        self._room.measure(self._serving, self._out, self._batches)

    def fits(self, ticket: Ticket) -> bool:
        """Whether a request may come in now, if need be in place of rows that matter less."""
        relief = self._room.judge(
            ticket.request, len(ticket.request.prompt), self._serving, self._out, self._batches
        )
        self._relief = {ticket.id: relief} if relief else {}
        return relief is not None

    def admit(self, ticket: Ticket) -> bool:
        """Takes a request in; False where a fault of its own ended it."""
        self._apply(self._relief.pop(ticket.id, Relief()))
        try:
            batch = open_batch(ticket.request)
            stream = Stream(ticket.request, batch.rows[0], ticket.send, ticket.poll, ticket.submitted)
            sought = self._means.prefixes.seek(ticket.request) if self._means.prefixes else None
        except Exception:  # the edge of a request: the others go on
            log.exception("request %s could not begin", ticket.id)
            ticket.end(BROKEN.reason, BROKEN.origin, BROKEN.message)
            return False
        ticket.begin(stream)
        self._reading[ticket.id] = Served(ticket, stream, batch, sought)
        return True

    def turn(self, *, undisturbed: bool, interactive_waits: bool = False) -> bool:
        """Reads one chunk of a prompt or plays one round; False where there was neither.

        `undisturbed` says that nobody waits to come in: the next round may be launched ahead.
        """
        self._sweep()
        self.look()
        self._bring_back(interactive_waits)
        self._begin_reading()
        self._keep_room()
        turn = self._turns.choose(
            [view_prefill(served) for served in self._on_their_way()],
            [BatchView(name, player.round_s) for name, player in self._players.items()],
            waited_s=time.perf_counter() - self._played if self._played else 0.0,
        )
        if isinstance(turn, Chunk):
            self._go_on(turn)
        elif isinstance(turn, Round):
            self._play(turn.id, go_on=undisturbed and self._looks_ahead(turn.id))
        if turn is not None and not self._serving:  # there may be no next turn to take in what has gone
            self.look()
        self._work_for_store()
        return turn is not None or self._await_restored()

    def _looks_ahead(self, name: str) -> bool:
        """Whether a batch's next round may be launched before its streams hear of this one. Where launching computes,
        that keeps them waiting: for their first token, and for two rounds whenever they begin to share one."""
        if len(self._players) > 1 or self._reading or self._joining or self._aside:
            return False
        streams = self._players[name].streams
        return not launches_compute() or (len(streams) == 1 and streams[0].made > 0)

    def settle(self) -> bool:
        """Lands what is in flight: something else has the device for a while. True: there is more to do."""
        for name, player in [*self._players.items()]:
            if player.in_flight:
                self._play(name, go_on=False)
        self._pause()
        return True

    def _pause(self) -> None:
        for player in self._players.values():
            player.pause()

    @property
    def _serving(self) -> list[Served]:
        return [*self._reading.values(), *self._joining.values(), *self._playing.values()]

    @property
    def _out(self) -> list[Served]:
        return [*self._aside.values()]

    @property
    def _batches(self) -> dict[str, Batch]:
        return {name: player.batch for name, player in self._players.items()}

    def _everybody(self) -> Iterator[Served]:
        yield from [*self._serving, *self._out]

    def _sweep(self) -> None:
        """Ends those that were cancelled; a round in flight lands without them."""
        for served in self._everybody():
            if end := served.stream.cancelled():
                self._let_go(served, end)

    def _begin_reading(self) -> None:
        """Lets prompts begin, except those that had better wait for another that begins as they do."""
        waits = {}
        if self._means.prefixes and len(self._reading) > 1:
            asked = [one.sought.asked(one.prefill) for one in self._reading.values() if one.sought]
            waits = whom_to_wait_for(asked, self._means.prefixes.block)
        for due in waits.values():
            if (leader := self._reading[due.leader].prefill) is not None:
                leader.marks.add(due.until)
        for served in [*self._reading.values()]:
            wait = waits.get(served.ticket.id)
            served.ticket.waits_for = f"the prompt of {wait.leader}" if wait else ""
            if served.prefill is None and served.restoring is None and wait is None:
                self._guarded(served, self._begin)

    def _begin(self, served: Served) -> None:
        """What is kept of the prompt comes back, a little at a time; the rest is read."""
        assert served.batch is not None
        started = served.sought.start(served.batch) if served.sought else None
        if isinstance(started, Restoring):
            served.restoring = started
            self._restore(served, 0.0)
        else:
            self._have_begun(served, started or Prefill(served.batch, served.request.prompt))

    def _restore(self, served: Served, seconds: float) -> None:
        """Some of what is kept, for about so many seconds; the prompt is read behind it once it is all there."""
        assert served.restoring is not None
        if (prefill := served.restoring.step(seconds)) is not None:
            served.stream.restore_s = time.perf_counter() - served.restoring.begun
            served.restoring = None
            self._have_begun(served, prefill)

    def _have_begun(self, served: Served, prefill: Prefill) -> None:
        served.prefill = prefill
        served.stream.cached = served.ticket.prefilled = prefill.begin
        served.stream.miss = served.sought.miss if served.sought else ""
        if prefill.finished:
            self._begin_joining(served)

    def _await_restored(self) -> bool:
        """Nobody has anything to do: waits for the disk where somebody does. False where nobody does."""
        waiting = [served.restoring for served in self._reading.values() if served.restoring]
        if waiting:
            waiting[0].wait(DISK_POLL_S)
        return bool(waiting)

    def _work_for_store(self) -> None:
        """Hands some of what was computed to the disk, for a small part of a round where streams wait."""
        if self._means.prefixes is not None:
            rounds = [player.round_s or 0.0 for player in self._players.values()]
            self._means.prefixes.work(STORE_PART * min(rounds) if rounds else STORE_S)

    def _on_their_way(self) -> Iterator[Served]:
        """Whose turn a chunk may be: prompts that are read, and of each batch the row that joins it next."""
        yield from (served for served in self._reading.values() if served.can_go_on)
        first = {served.batch_name: served for served in reversed(self._joining.values())}
        yield from first.values()

    def _go_on(self, turn: Chunk) -> None:
        """The next of a prompt, for about so many seconds; its row joins as soon as it can."""
        self._pause()
        pace = Pace(turn.seconds) if turn.waited_for else None
        if (served := self._reading.get(turn.id)) is not None and served.restoring:
            self._guarded(served, lambda one: self._restore(one, turn.seconds))
        elif served is not None:
            self._guarded(served, lambda one: self._read(one, turn.seconds, pace))
            if turn.id in self._joining and pace and pace.over():
                return
        if (served := self._joining.get(turn.id)) is not None:
            self._guarded(served, lambda one: self._join(one, pace))

    def _read(self, served: Served, seconds: float, pace: Pace | None) -> None:
        """A chunk of a prompt, or the next parts of one."""
        assert served.prefill is not None
        sizer = self._sizers.setdefault(served.model_name, ChunkSizer())
        before, begun = served.prefill.done, time.perf_counter()
        size = sizer.size(seconds * (SPREAD if pace else 1.0), before)
        served.prefill.step(min(self._means.chunk, size), pace.over if pace else None)
        done = served.prefill.done
        served.spent += time.perf_counter() - begun
        if done > before:
            sizer.observe(done - before, before, served.spent)
            served.spent = 0.0
        self._on_work(served.ticket, done - before)
        if not served.stream.decoding:
            served.ticket.prefilled = done
            served.stream.report_prefill(done)
        if served.prefill.finished:
            self._begin_joining(served)

    def _begin_joining(self, served: Served) -> None:
        """The row plays at once where nobody does, else when it is copied to where it joins."""
        self._reading.pop(served.ticket.id, None)
        if served.batch_name in self._players:
            self._joining[served.ticket.id] = served
        else:
            self._seat(served)

    def _join(self, served: Served, pace: Pace | None) -> None:
        """Some of the row's layers, and the row itself once all are there."""
        name, batch = served.batch_name, served.batch
        assert batch is not None
        if name in self._players and self._players[name].in_flight:
            self._play(name, go_on=False)
        player = self._players.get(name)  # its last row may have left just now
        if player is None or player.batch.make_ready(batch, pace.over if pace else bool):
            self._seat(served)

    def _guarded(self, served: Served, work: Callable[[Served], None]) -> None:
        """A fault while one prompt is read ends that request alone."""
        try:
            work(served)
        except Exception:  # the edge of a request: the others go on
            log.exception("the prompt of request %s failed", served.ticket.id)
            self._let_go(served, BROKEN)

    def _play(self, name: str, go_on: bool) -> None:
        """A round of one batch; those that came to their end leave."""
        player, begun = self._players[name], time.perf_counter()
        made = {stream.request.id: stream.made for stream in player.streams}
        ended = player.turn(go_on)
        self._played = time.perf_counter()
        self._turns.spent(name, self._played - begun)
        for stream in player.streams:
            ticket = self._playing[stream.request.id].ticket
            self._on_work(ticket, stream.made - made[stream.request.id])
        for one in ended:
            self._let_go(self._playing[one.stream.request.id], one.end)

    def _seat(self, served: Served) -> None:
        """Moves a request whose prompt is read to where its rounds are played."""
        name, batch = served.batch_name, served.batch
        assert batch is not None
        self._joining.pop(served.ticket.id, None)
        self._playing[served.ticket.id] = served
        served.prefill = served.batch = None
        served.stream.begin_decoding()
        served.ticket.state = "decode"
        if name in self._players:
            self._players[name].join(served.stream, batch)
        else:
            self._players[name] = Player(batch, [served.stream], depths_of(served.request.model))

    def _unseat(self, served: Served) -> None:
        del self._playing[served.ticket.id]
        player = self._players[served.batch_name]
        player.leave(served.stream)
        if not player.streams:
            del self._players[served.batch_name]

    def _stop_joining(self, served: Served) -> None:
        if self._joining.pop(served.ticket.id, None) and served.batch_name in self._players:
            self._players[served.batch_name].batch.forget_coming()

    def _let_go(self, served: Served, end: End) -> None:
        """A request comes to its end, wherever it is."""
        self._reading.pop(served.ticket.id, None)
        self._aside.pop(served.ticket.id, None)
        self._stop_joining(served)
        served.stop_restoring()
        if served.ticket.id in self._playing:
            self._keep_turn(served, end)
            self._unseat(served)
        try:
            finished = served.stream.finish(end)
        except Exception:  # whatever of a text breaks at its end, it ends
            log.exception("request %s failed at its end", served.ticket.id)
            served.ticket.end(BROKEN.reason, BROKEN.origin, BROKEN.message)
            finished = None
        self._on_end(served.ticket, finished)

    def _keep_turn(self, served: Served, end: End) -> None:
        """What a row said is kept for whoever goes on from there, unless something was wrong with it."""
        if served.sought is None or end.reason == "error":
            return
        player = self._players[served.batch_name]
        try:
            if len(player.streams) == 1:
                player.stop()  # nobody else goes on from what is in flight
            place = player.streams.index(served.stream)
            served.sought.keep_turn(player.batch, place, quiet=not player.in_flight)
        except Exception:  # what cannot be kept costs nobody an answer
            log.exception("the answer to request %s is not kept", served.ticket.id)

    def _keep_room(self) -> None:
        """Sets rows aside before the next turn would need more memory than there is."""
        self._apply(self._room.relieve(self._serving, self._out, self._batches))

    def _apply(self, relief: Relief) -> None:
        if relief.hopeless:
            [served] = [one for one in self._serving if one.ticket.id == relief.hopeless]
            self._let_go(served, HOPELESS)
            return
        self._room.free_snapshots(relief.free.snapshots)
        self._drop_copies(relief.free.copies)
        for aside in relief.aside:
            self._set_aside(aside)

    def _drop_copies(self, nbytes: int) -> None:
        """Gives up copies of rows set aside, the latest first; what they held is computed again."""
        for served in sorted(self._out, key=lambda one: -one.ticket.submitted):
            if nbytes <= 0:
                return
            nbytes -= served.bytes_aside
            served.lose()

    def _set_aside(self, aside: Aside) -> None:
        served = {one.ticket.id: one for one in self._serving}.get(aside.id)
        if served is None:
            return
        log.info("request %s is set aside for a while", aside.id)
        if aside.id in self._playing:
            if self._players[served.batch_name].in_flight:
                self._play(served.batch_name, go_on=False)
            if aside.id not in self._playing:  # it came to its end with that round
                return
            copy = self._players[served.batch_name].copy_out(served.stream) if aside.copy else None
            self._unseat(served)
            served.lose()
            served.batch = copy
        elif not aside.copy:
            served.lose()
        self._reading.pop(aside.id, None)
        self._stop_joining(served)
        served.bytes_aside = _bytes_in(served.batch)
        served.out_since = time.monotonic()
        served.ticket.state, served.ticket.waits_for = "set_aside", "memory"
        self._aside[aside.id] = served

    def _bring_back(self, interactive_waits: bool) -> None:
        """Those that were set aside go on, as there is room for them."""
        while self._aside:
            found = self._room.next_back(
                self._serving,
                self._out,
                self._batches,
                time.monotonic(),
                interactive_waits=interactive_waits,
            )
            if found is None:
                return
            served, relief = found
            del self._aside[served.ticket.id]
            self._apply(relief)
            self._return(served)

    def _return(self, served: Served) -> None:
        """With its copy a row plays or is read on at once; without, what it held is computed first."""
        served.owed, served.came_in, served.bytes_aside = True, served.stream.made, 0
        served.ticket.state, served.ticket.waits_for = "prefill", ""
        if served.batch is None:
            served.prefill = Recall(served.request, served.stream.row)
            served.batch = served.prefill.batch
        if served.prefill or not served.stream.decoding:
            self._reading[served.ticket.id] = served
        else:
            self._begin_joining(served)


def _bytes_in(batch: Batch | None) -> int:
    return sum(layer.nbytes for layer in (*batch.cache, *batch.head_cache)) if batch else 0
