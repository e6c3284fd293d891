"""The engine thread: owns every MLX array, serves requests in turn, runs what others must do with arrays in between."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mtplxd.engine.events import Finished, Progress, Sink
from mtplxd.engine.request import Request
from mtplxd.engine.scheduler import FairQueue
from mtplxd.engine.ticket import InFlight, Ticket
from mtplxd.errors import ResourceExhausted, Unavailable

if TYPE_CHECKING:  # the daemon makes the engine before model libraries are imported
    from mtplxd.engine.batch import Batch

log = logging.getLogger(__name__)
T = TypeVar("T")

QUEUE_LIMIT = 64
RETRY_AFTER_S = 2.0
BROKEN = "the engine met an error of its own: see `mtplx logs`, then try again"


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums since `since_unix_s`."""

    since_unix_s: float
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0

    def plus(self, finished: Finished) -> Counters:
        """With one more answer."""
        return Counters(
            self.since_unix_s,
            self.requests + 1,
            self.prompt_tokens + finished.prompt_tokens,
            self.completion_tokens + finished.completion_tokens,
            self.rounds + finished.stats.rounds,
            self.drafted + finished.stats.drafted,
            self.accepted + finished.stats.accepted,
        )


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """What status shows of the engine. `busy_with` names a call that holds it."""

    running: int
    waiting: int
    in_flight: tuple[InFlight, ...]
    counters: Counters
    alive: bool
    busy_with: str


@dataclass(slots=True)
class _Call:
    fn: Callable[[], Any]
    reason: str
    future: Future[Any]


class Engine:
    """One thread. Calls go before requests, and both run to their end before the next begins."""

    def __init__(self, queue_limit: int = QUEUE_LIMIT, prefill_chunk: int | None = None) -> None:
        self._queue: FairQueue[Ticket] = FairQueue(queue_limit)
        self._calls: deque[_Call] = deque()
        self._current: Ticket | None = None
        self._busy_with = ""
        self._stopping = False
        self._failure: BaseException | None = None
        self._chunk = prefill_chunk
        self._wake = threading.Condition()
        self._ended = threading.Event()
        self._counters = Counters(since_unix_s=time.time())
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Starts the thread; MLX is imported by the first call that needs it, on that thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Ends what is in flight with origin `shutdown` and waits for the thread; False when it is still busy."""
        with self._wake:
            self._stopping = True
            waiting = list(self._queue)
            for ticket in waiting:
                self._queue.remove(ticket.id)
            calls, self._calls = list(self._calls), deque()
            if self._current:
                self._current.cancel("shutdown")
            self._wake.notify_all()
        for ticket in waiting:
            ticket.end("cancelled", "shutdown")
        for call in calls:
            call.future.set_exception(Unavailable("the daemon is stopping", fix="start it again"))
        return self._ended.wait(timeout_s) if self._thread.is_alive() else True

    def submit(self, request: Request, sink: Sink) -> None:
        """Queues a request. `sink` hears its events, exactly one Finished the last of them, on the engine thread; while
        the request waits its turn, on the thread that submits, cancels or stops.

        Raises Unavailable when stopping or dead, ResourceExhausted when the queue is full.
        """
        ticket = Ticket(request, sink)
        with self._wake:
            self._check_open()
            if self._queue.full:
                raise ResourceExhausted(
                    "the queue is full",
                    f"{len(self._queue)} waiting",
                    "try again in a moment",
                    needed=1,
                    available=0,
                    retry_after_s=RETRY_AFTER_S,
                )
            ahead = len(self._queue) + (self._current is not None)
            if ahead:  # sent before anyone else can see the ticket, so that it cannot follow a Finished
                ticket.send(Progress("queue", 0, ahead))
            self._queue.add(ticket)
            self._wake.notify()

    def cancel(self, request_id: str, origin: str = "client") -> bool:
        """Ends a request wherever it is; False when there is no such request."""
        with self._wake:
            waiting = self._queue.remove(request_id)
            if waiting is None:
                if self._current is None or self._current.id != request_id:
                    return False
                self._current.cancel(origin)
                return True
        waiting.end("cancelled", origin)
        return True

    def call(self, fn: Callable[[], T], reason: str) -> Future[T]:
        """Runs `fn` on the engine thread between requests; others wait with `reason` while it does."""
        future: Future[T] = Future()
        with self._wake:
            self._check_open()
            self._calls.append(_Call(fn, reason, future))
            self._wake.notify()
        return future

    def run_inline(
        self,
        request: Request,
        sink: Sink,
        poll: Callable[[], str | None] | None = None,
        inspect: Callable[[Batch], None] | None = None,
    ) -> Finished:
        """Decodes one request now; only for a function that `call` runs.

        `poll` gives the origin of a cancel; `inspect` gets the batch at the end, its caches still filled.
        """
        if threading.current_thread() is not self._thread:
            raise RuntimeError("run_inline outside the engine thread")

        def stopped() -> str | None:
            return "shutdown" if self._stopping else poll() if poll else None

        return self._decode(Ticket(request, sink), stopped, inspect)

    @property
    def stopping(self) -> bool:
        """Whether the end was asked for; work that `run_inline` does not poll for asks this between forwards."""
        return self._stopping

    def snapshot(self) -> EngineSnapshot:
        """A consistent picture; cheap, never waits for a forward."""
        with self._wake:
            current, waiting = self._current, list(self._queue)
            busy_with, counters = self._busy_with, self._counters
        described = [current.describe("")] if current else []
        ahead_of = busy_with or (current.id if current else "")
        described += [ticket.describe(ahead_of) for ticket in waiting]
        alive = self._thread.is_alive() and not self._ended.is_set() and self._failure is None
        return EngineSnapshot(
            int(current is not None), len(waiting), tuple(described), counters, alive, busy_with
        )

    def _check_open(self) -> None:
        if self._failure is not None:
            raise Unavailable("the engine has died", type(self._failure).__name__, "restart the daemon")
        if self._stopping:
            raise Unavailable("the daemon is stopping", fix="start it again")

    def _run(self) -> None:
        try:
            while (work := self._next()) is not None:
                if isinstance(work, _Call):
                    self._serve_call(work)
                else:
                    self._serve(work)
        except BaseException as error:
            # The edge of the thread: whatever it is, nobody may wait for a dead engine.
            log.exception("the engine thread died")
            self._die(error)
        finally:
            _settle_device()
            self._ended.set()
            _park()

    def _next(self) -> _Call | Ticket | None:
        with self._wake:
            while True:
                if self._calls:
                    call = self._calls.popleft()
                    self._busy_with = call.reason
                    return call
                if self._stopping:
                    return None
                if (ticket := self._queue.take()) is not None:
                    self._current = ticket
                    return ticket
                self._wake.wait()

    def _serve_call(self, call: _Call) -> None:
        try:
            if call.future.set_running_or_notify_cancel():
                call.future.set_result(call.fn())
        except BaseException as error:
            # The caller gets it through the future; unless it is an order to exit, the thread goes on.
            call.future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with self._wake:
                self._busy_with = ""

    def _serve(self, ticket: Ticket) -> None:
        try:
            origin = ticket.poll()
            if origin:
                ticket.end("cancelled", origin)
            else:
                self._decode(ticket, None)
        except BaseException as error:
            # One request's fault never takes the engine down; the log has the traceback.
            log.exception("request %s failed", ticket.id)
            ticket.end("error", "internal", BROKEN)
            if not isinstance(error, Exception):
                raise
        finally:
            with self._wake:
                self._current = None

    def _decode(
        self,
        ticket: Ticket,
        poll: Callable[[], str | None] | None,
        inspect: Callable[[Batch], None] | None = None,
    ) -> Finished:
        from mtplxd.engine.decode import Decoder
        from mtplxd.engine.prefill import CHUNK

        ticket.state = "prefill"

        def either() -> str | None:
            self._expire_waiting()
            return ticket.poll() or (poll() if poll else None)

        decoder = Decoder(ticket.request, ticket.send, either, ticket.submitted, self._chunk or CHUNK)
        finished = decoder.run()
        ticket.request.model.note_degraded(finished.stats.degraded)
        if inspect:
            inspect(decoder.batch)
        with self._wake:
            self._counters = self._counters.plus(finished)
        return finished

    def _expire_waiting(self) -> None:
        """Ends requests whose deadline passed in the queue; called between rounds."""
        if self._queue.empty:  # read without the lock: who comes just now is seen a round later
            return
        with self._wake:
            expired = [ticket for ticket in self._queue if ticket.poll()]
            for ticket in expired:
                self._queue.remove(ticket.id)
        for ticket in expired:
            ticket.end("cancelled", ticket.poll() or "deadline")

    def _die(self, error: BaseException) -> None:
        with self._wake:
            self._failure = error
            tickets = [ticket for ticket in (self._current, *self._queue) if ticket]
            calls, self._calls = list(self._calls), deque()
        for ticket in tickets:
            ticket.end("error", "internal", BROKEN)
        for call in calls:
            call.future.set_exception(Unavailable("the engine has died", fix="restart the daemon"))


def _settle_device() -> None:
    """Waits for forwards nobody awaited: a thread that ends with work in flight takes the process down with it."""
    if (loaded := sys.modules.get("mtplxd.platform.mlx")) is not None:
        loaded.mx.synchronize()


def _park() -> None:
    """Keeps the thread for as long as the process lives: MLX's thread-local destructors take the interpreter's lock,
    and abort the process when a thread ends while the interpreter is going away."""
    threading.Event().wait()
