"""A submitted request on its way through the engine: its state, its cancel, its one terminal event. Decodes nothing."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtplxd.engine.events import Event, Finished, Sink, Stats, Text
from mtplxd.engine.request import Request

if TYPE_CHECKING:  # the daemon makes tickets before model libraries are imported
    from mtplxd.engine.stream import Stream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InFlight:
    """What status shows of a request. `state` is queue, prefill, decode or set_aside.

    `depth` is that of its newest round, `prefilled` the positions of the prompt that are read.
    """

    id: str
    client: str
    model: str
    state: str
    waits_for: str
    prompt_tokens: int
    completion_tokens: int
    age_s: float
    priority: str = "interactive"
    rounds: int = 0
    depth: int = 0
    tok_s: float = 0.0
    cached_tokens: int = 0
    prefilled: int = 0


class Ticket:
    """Shared between the thread that submitted and the engine's. State goes queue → prefill → decode → done."""

    def __init__(self, request: Request, sink: Sink) -> None:
        self.request = request
        self.submitted = time.perf_counter()
        self.state = "queue"
        self.made = 0
        self.waits_for = ""
        self.prefilled = 0
        self._stream: Stream | None = None
        self._sink = sink
        self._origin: str | None = None
        self._lock = threading.Lock()
        self._finished = False

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.id

    @property
    def client(self) -> str:
        """Who asked."""
        return self.request.client

    @property
    def priority(self) -> str:
        """Its class."""
        return self.request.priority

    @property
    def deadline(self) -> float | None:
        """On the `time.monotonic` clock."""
        return self.request.deadline

    def begin(self, stream: Stream) -> None:
        """The request left the queue; `stream` has its numbers from now on."""
        self._stream, self.state = stream, "prefill"

    def cancel(self, origin: str) -> None:
        """Asks for the end; the first origin counts."""
        self._origin = self._origin or origin

    def poll(self) -> str | None:
        """The origin of a cancel, the deadline's included."""
        if (
            self._origin is None
            and self.request.deadline is not None
            and time.monotonic() >= self.request.deadline
        ):
            self._origin = "deadline"
        return self._origin

    def send(self, event: Event) -> None:
        """Hands an event on; nothing follows a Finished. An owner that fails to take one ends its request."""
        with self._lock:
            if self._finished:
                return
            self._finished = isinstance(event, Finished)
        if isinstance(event, Text):
            self.state = "decode"
            self.made += len(event.tokens)
        elif isinstance(event, Finished):
            self.state = "done"
        try:
            self._sink(event)
        except Exception:
            # The owner's fault: it must reach neither the engine's thread nor another request's.
            log.exception("the owner of request %s failed to take an event", self.id)
            self.cancel("client")

    def end(self, reason: str, origin: str, message: str = "") -> None:
        """Ends a request that was never decoded, or whose decoding broke."""
        waited = time.perf_counter() - self.submitted
        stats = Stats(depth=self.request.depth, queue_s=waited)
        self.send(Finished(reason, origin, len(self.request.prompt), 0, self.made, stats, message))

    def describe(self, waits_for: str) -> InFlight:
        """A picture for status."""
        age = time.perf_counter() - self.submitted
        request = self.request
        stream = self._stream
        return InFlight(
            self.id,
            self.client,
            request.model.name,
            self.state,
            waits_for,
            len(request.prompt),
            self.made,
            age,
            request.priority,
            rounds=stream.row.counts.rounds if stream else 0,
            depth=stream.depth if stream else 0,
            tok_s=stream.tok_s if stream else 0.0,
            cached_tokens=stream.cached if stream else 0,
            prefilled=self.prefilled,
        )
