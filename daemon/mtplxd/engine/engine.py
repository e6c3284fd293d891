"""The engine thread: owns every MLX array, serves requests together, and runs what others must do with arrays."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mtplxd.engine.events import NON_FINITE, Finished, Progress, Sink
from mtplxd.engine.request import INTERACTIVE, Request
from mtplxd.engine.scheduling.admission import judge_alone, row_need
from mtplxd.engine.scheduling.queue import FairQueue
from mtplxd.engine.snapshot import Counters, EngineSnapshot
from mtplxd.engine.ticket import Ticket
from mtplxd.errors import Unavailable

if TYPE_CHECKING:  # the daemon makes the engine before model libraries are imported
    from mtplxd.engine.batch import Batch
    from mtplxd.engine.prefixes import Prefixes
    from mtplxd.engine.prefixes import Store as PrefixStore
    from mtplxd.engine.service import Service
    from mtplxd.families.load import LoadedModel

log = logging.getLogger(__name__)
T = TypeVar("T")

QUEUE_LIMIT = 64
MAX_ROWS = 16
MEMORY_POLL_S = 0.25
"""How often memory is looked at while all there is waits for it; no one tells when another process gives some back."""
STORE_S, LAST_BLOCKS_S = 0.05, 5.0
"""How long bytes are handed to the disk at a time where nobody waits, and in all at the end."""
BROKEN = "the engine met an error of its own: see `mtplx logs`, then try again"


@dataclass(slots=True)
class _Call:
    fn: Callable[[], Any]
    reason: str
    future: Future[Any]

    def refuse(self, error: Exception) -> None:
        """It will never run; one that its caller gave up has ended already."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Engine:
    """One thread. Calls go before requests, between two rounds; requests wait while one runs.

    At most `max_rows` requests are in service at once, `queue_limit` wait, `client_limit` of them one client's.
    `kv_budget` gives the bytes that contexts may take in all, from those they take now; it may be called from any
    thread. What is kept of prompts is in `prefix_store`.
    """

    def __init__(
        self,
        queue_limit: int = QUEUE_LIMIT,
        prefill_chunk: int | None = None,
        max_rows: int = MAX_ROWS,
        client_limit: int | None = None,
        kv_budget: Callable[[int], int] | None = None,
        prefix_store: PrefixStore | None = None,
    ) -> None:
        self._queue: FairQueue[Ticket] = FairQueue(queue_limit, client_limit)
        self._calls: deque[_Call] = deque()
        self._in_service: dict[str, Ticket] = {}
        self._service: Service | None = None
        self._busy_with = ""
        self._stopping, self._short = False, False
        self._failure: BaseException | None = None
        self._chunk, self._max_rows = prefill_chunk, max_rows
        self._kv_budget, self._prefix_store = kv_budget, prefix_store
        self._prefixes: Prefixes | None = None
        self._wake = threading.Condition()
        self._ended = threading.Event()
        self._beat = time.monotonic()
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
            for ticket in self._in_service.values():
                ticket.cancel("shutdown")
            self._wake.notify_all()
        for ticket in waiting:
            ticket.end("cancelled", "shutdown")
        for call in calls:
            call.refuse(Unavailable("the daemon is stopping", fix="start it again"))
        return self._ended.wait(timeout_s) if self._thread.is_alive() else True

    def submit(self, request: Request, sink: Sink) -> None:
        """Queues a request. `sink` hears its events, exactly one Finished the last of them, on the engine thread; while
        the request waits its turn, on the thread that submits, cancels or stops.

        Raises Unavailable when stopping or dead, ResourceExhausted when the queue or the client's part of it is full,
        InvalidArgument for an id that is in flight. A context that could never be held is refused as well.
        """
        ticket = Ticket(request, sink)
        self._check_memory(request)
        with self._wake:
            self._check_open()
            self._queue.check(ticket)
            ahead = len(self._queue) + max(0, len(self._in_service) - self._max_rows + 1)
            if ahead:  # sent before anyone else can see the ticket, so that it cannot follow a Finished
                ticket.send(Progress("queue", 0, ahead))
            self._queue.add(ticket, time.monotonic())
            self._wake.notify()

    def cancel(self, request_id: str, origin: str = "client") -> bool:
        """Ends a request wherever it is; False when there is no such request."""
        with self._wake:
            waiting = self._queue.remove(request_id)
            if waiting is None:
                serving = self._in_service.get(request_id)
                if serving is None:
                    return False
                serving.cancel(origin)
                return True
        waiting.end("cancelled", origin)
        return True

    def call(self, fn: Callable[[], T], reason: str) -> Future[T]:
        """Runs `fn` on the engine thread between rounds; others wait with `reason` while it does."""
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

    def beat(self) -> None:
        """A call that holds the engine goes on; long ones say so between the steps of their work."""
        self._beat = time.monotonic()

    @property
    def serving(self) -> bool:
        """Whether anybody's text is being made just now; asked from any thread, and often."""
        return bool(self._in_service)

    @property
    def stopping(self) -> bool:
        """Whether the end was asked for; work that `run_inline` does not poll for asks this between forwards."""
        return self._stopping

    @property
    def context_bytes(self) -> int:
        """Bytes of all contexts and of what is kept of prompts, as of the last turn."""
        return self._held_bytes + (self._prefix_store.nbytes if self._prefix_store else 0)

    @property
    def _held_bytes(self) -> int:
        service = self._service
        return service.held_bytes if service else 0

    def forget(self, model: LoadedModel) -> None:
        """Drops what is kept of a model that leaves memory, its prompts first; only for a function that `call` runs."""
        if self._service is not None:
            self._service.forget(model)
        if self._prefixes is not None:  # nobody asked for anything else
            self._prefixes.forget(model)

    def drop_kept(self, drop: Callable[[Prefixes], int]) -> Future[int]:
        """Drops of what is kept of prompts in memory; how many bytes that were."""
        return self.call(lambda: drop(self._prefixes) if self._prefixes is not None else 0, "clearing")

    def snapshot(self) -> EngineSnapshot:
        """A consistent picture; cheap, never waits for a forward."""
        with self._wake:
            serving, waiting = [*self._in_service.values()], [*self._queue]
            busy_with, counters, beat = self._busy_with, self._counters, self._beat
        states = [ticket.state for ticket in serving]
        described = [ticket.describe(busy_with or ticket.waits_for) for ticket in serving]
        described += [ticket.describe(busy_with or self._why_waiting(serving)) for ticket in waiting]
        alive = self._thread.is_alive() and not self._ended.is_set() and self._failure is None
        return EngineSnapshot(
            len(serving),
            len(waiting),
            tuple(described),
            counters,
            alive,
            busy_with,
            rows=states.count("decode"),
            prefilling=states.count("prefill"),
            set_aside=states.count("set_aside"),
            heartbeat_age_s=time.monotonic() - beat,
            contexts=self._held_bytes,
        )

    def _why_waiting(self, serving: Sequence[Ticket]) -> str:
        if len(serving) >= self._max_rows:
            return "a free row"
        return "memory" if self._short else "its turn"

    def _check_memory(self, request: Request) -> None:
        if self._kv_budget is None:
            return
        need = row_need(len(request.prompt), request.max_tokens, request.model.context)
        never = judge_alone(need, request.model.footprint, self._kv_budget(self.context_bytes))
        if never:
            raise never.error

    def _check_open(self) -> None:
        if self._failure is not None:
            raise Unavailable("the engine has died", type(self._failure).__name__, "restart the daemon")
        if self._stopping:
            raise Unavailable("the daemon is stopping", fix="start it again")

    def _run(self) -> None:
        try:
            while self._step():
                pass
            if self._prefixes is not None and not self._prefixes.flush(LAST_BLOCKS_S):
                log.warning("the disk was too slow for all that was to be kept")
        except BaseException as error:
            # The edge of the thread: whatever it is, nobody may wait for a dead engine.
            log.exception("the engine thread died")
            self._die(error)
        finally:
            _settle_device()
            self._ended.set()
            _park()

    def _step(self) -> bool:
        """One call, or one turn of what is in service; False when the thread must end."""
        call = self._next_call()
        service = self._service
        if call:
            if service:
                self._guarded(service.settle)
            self._serve_call(call)
            return True
        if service is None and not self._queue.empty:
            service = self._service = self._open_service()
        if service is None:
            return not self._stopping
        return self._guarded(lambda: self._take_turn(service))

    def _take_turn(self, service: Service) -> bool:
        """Newcomers, then one turn; False when the thread must end."""
        self._take_newcomers(service)
        waiting, urgent = self._look_at_queue()
        full = len(self._in_service) >= self._max_rows
        if service.turn(undisturbed=full or not waiting, interactive_waits=urgent):
            return True
        return self._work_for_store() or self._wait_for_memory()

    def _work_for_store(self) -> bool:
        """Hands bytes to the disk while nobody waits for anything; tells whether there were any."""
        return self._prefixes is not None and self._prefixes.work(STORE_S)

    def _guarded(self, work: Callable[[], bool]) -> bool:
        try:
            return work()
        except Exception:  # whatever broke, those who come next are served
            log.exception("a turn failed")
            self._abandon()
            return True

    def _look_at_queue(self) -> tuple[bool, bool]:
        """Whether anybody waits, and whether somebody waits for one of the texts."""
        if self._queue.empty:
            return False, False
        with self._wake:
            return True, any(ticket.priority == INTERACTIVE for ticket in self._queue)

    def _wait_for_memory(self) -> bool:
        """Nothing could be done: all there is waits for memory, which others may give back. False at the end."""
        with self._wake:
            if self._calls:
                return True
            if self._stopping and not self._in_service:
                return False
            if self._in_service or not self._queue.empty:
                self._beat = time.monotonic()
                self._wake.wait(MEMORY_POLL_S)
        self._expire_waiting()
        return True

    def _abandon(self) -> None:
        """Ends all in service, with an error."""
        self._service = None
        for ticket in [*self._in_service.values()]:
            ticket.end("error", "internal", BROKEN)
            self._release(ticket)

    def _next_call(self) -> _Call | None:
        """Waits until there is something to do; gives the call that goes first, if one waits."""
        with self._wake:
            self._beat = time.monotonic()
            while not (self._calls or self._in_service or self._stopping or not self._queue.empty):
                due = self._prefixes.wait_s() if self._prefixes else None
                if due == 0.0:
                    break
                self._wake.wait(due)
                self._beat = time.monotonic()
            if not self._calls:
                return None
            call = self._calls.popleft()
            self._busy_with = call.reason
            return call

    def _take_newcomers(self, service: Service) -> None:
        """Lets in whoever has room, one after the other: each changes the room there is."""
        while not self._queue.empty:
            service.look()
            with self._wake:
                ticket = self._queue.take(service.fits, time.monotonic())
                self._short = ticket is None
                if ticket is None:
                    return
                self._in_service[ticket.id] = ticket
            origin = ticket.poll()
            if origin:
                ticket.end("cancelled", origin)
            if origin or not service.admit(ticket):
                self._release(ticket)

    def _open_service(self) -> Service:
        from mtplxd.engine.prefill import CHUNK
        from mtplxd.engine.prefixes import Prefixes
        from mtplxd.engine.service import Means, Service

        if self._prefix_store is not None and self._prefixes is None:
            self._prefixes = Prefixes(self._prefix_store)
        means = Means(self._max_rows, self._chunk or CHUNK, self._kv_budget, self._prefixes)
        return Service(means, self._note_end, self._note_work)

    def _note_end(self, ticket: Ticket, finished: Finished | None) -> None:
        if finished:
            self._count(ticket.request, finished)
        self._release(ticket)

    def _note_work(self, ticket: Ticket, work: int) -> None:
        with self._wake:
            self._beat = time.monotonic()
            self._queue.charge(ticket.client, work)
        self._expire_waiting()

    def _release(self, ticket: Ticket) -> None:
        with self._wake:
            del self._in_service[ticket.id]
            self._queue.done(ticket.id)

    def _count(self, request: Request, finished: Finished) -> None:
        spoiled = (NON_FINITE,) if finished.stop_origin == NON_FINITE else ()
        request.model.note_degraded((*finished.stats.degraded, *spoiled))
        with self._wake:
            self._counters = self._counters.plus(finished)

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

    def _decode(
        self,
        ticket: Ticket,
        poll: Callable[[], str | None],
        inspect: Callable[[Batch], None] | None,
    ) -> Finished:
        from mtplxd.engine.decode import Decoder
        from mtplxd.engine.prefill import CHUNK

        def either() -> str | None:
            self._beat = time.monotonic()
            self._expire_waiting()
            return ticket.poll() or poll()

        decoder = Decoder(ticket.request, ticket.send, either, ticket.submitted, self._chunk or CHUNK)
        finished = decoder.run()
        if inspect:
            inspect(decoder.batch)
        self._count(ticket.request, finished)
        return finished

    def _expire_waiting(self) -> None:
        """Ends requests whose deadline passed in the queue; called between rounds."""
        if self._queue.empty:  # read without the lock: who comes just now is seen a round later
            return
        with self._wake:
            expired = self._queue.expire(time.monotonic())
        for ticket in expired:
            ticket.end("cancelled", "deadline")

    def _die(self, error: BaseException) -> None:
        with self._wake:
            self._failure = error
            tickets = [*self._in_service.values(), *self._queue]
            self._in_service = {}
            calls, self._calls = list(self._calls), deque()
        for ticket in tickets:
            ticket.end("error", "internal", BROKEN)
        for call in calls:
            call.refuse(Unavailable("the engine has died", fix="restart the daemon"))


def _settle_device() -> None:
    """Waits for forwards nobody awaited: a thread that ends with work in flight takes the process down with it."""
    if (loaded := sys.modules.get("mtplxd.platform.mlx")) is not None:
        loaded.mx.synchronize()


def _park() -> None:
    """Keeps the thread for as long as the process lives: MLX's thread-local destructors take the interpreter's lock,
    and abort the process when a thread ends while the interpreter is going away."""
    threading.Event().wait()
