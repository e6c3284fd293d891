"""An engine without models: it says what a script says, from a thread of its own, and records what is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from mtplxd.engine.events import Event, Finished, Sink, Stats, Text
from mtplxd.engine.request import Request
from mtplxd.engine.snapshot import Counters, EngineSnapshot
from mtplxd.engine.ticket import InFlight

Script = Callable[["Job"], Iterator[Event]]
WAIT_S = 30.0


@dataclass
class Job:
    """A submitted request. A script may wait for `go` or `cancelled`."""

    request: Request
    sink: Sink
    go: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    origin: str = ""
    finished: threading.Event = field(default_factory=threading.Event)


def finished(job: Job, reason: str = "stop", origin: str = "eos", made: int = 1) -> Finished:
    return Finished(reason, origin, len(job.request.prompt), 0, made, Stats(depth=job.request.depth))


def say_hello(job: Job) -> Iterator[Event]:
    """Two pieces and the end."""
    yield Text("hel", (5,))
    yield Text("lo", (6, 7))
    yield finished(job, made=3)


def until_cancelled(job: Job) -> Iterator[Event]:
    """One piece, then nothing until somebody cancels."""
    yield Text("…", (5,))
    job.cancelled.wait(WAIT_S)
    yield finished(job, "cancelled", job.origin)


class ScriptedEngine:
    """The part of Engine that rpc uses."""

    def __init__(self, script: Script = say_hello) -> None:
        self.script = script
        self.jobs: list[Job] = []
        self.refuses: Exception | None = None
        self.alive = True
        self.in_flight: list[InFlight] = []
        self.busy_with = ""
        self.heartbeat_age_s = 0.0
        self.contexts = 0
        self.beats = 0
        self.submitted = threading.Event()
        self._since = time.time()

    def submit(self, request: Request, sink: Sink) -> None:
        if self.refuses is not None:
            raise self.refuses
        job = Job(request, sink)
        self.jobs.append(job)
        threading.Thread(target=self._play, args=(job,), daemon=True).start()
        self.submitted.set()

    def _play(self, job: Job) -> None:
        for event in self.script(job):
            job.sink(event)
        job.finished.set()

    def cancel(self, request_id: str, origin: str = "client") -> bool:
        for job in self.jobs:
            if job.request.id == request_id and not job.finished.is_set():
                job.origin = job.origin or origin
                job.cancelled.set()
                return True
        return False

    def call(self, fn: Callable[[], Any], reason: str) -> Future[Any]:  # noqa: ARG002
        future: Future[Any] = Future()
        future.set_result(fn())
        return future

    def snapshot(self) -> EngineSnapshot:
        running = sum(not job.finished.is_set() for job in self.jobs)
        return EngineSnapshot(
            running,
            0,
            tuple(self.in_flight),
            Counters(self._since),
            self.alive,
            self.busy_with,
            rows=running,
            heartbeat_age_s=self.heartbeat_age_s,
            contexts=self.contexts,
        )

    def beat(self) -> None:
        self.beats += 1
