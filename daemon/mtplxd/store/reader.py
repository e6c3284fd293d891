"""Reads blocks on a thread of its own, so that nobody who decodes waits for a disk. Knows names, no model, no policy.

What was read and not taken yet is bounded in bytes; a job that is given up is not read on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mtplxd.store.blocks import BlockBytes

AHEAD = 96 << 20
"""Most bytes of a job that wait to be taken."""

Read = Callable[[bytes, Sequence[int]], BlockBytes | None]


@dataclass(frozen=True, slots=True)
class Item:
    """A block to read: its place in a path, which part of it, its name and its tokens."""

    place: int
    part: str
    name: bytes
    tokens: tuple[int, ...]


@dataclass(slots=True)
class Job:
    """Blocks to read, in order. It has `failed` where one was not to be had; what comes after that is not read."""

    items: Sequence[Item]
    failed: bool = False
    over: bool = False
    dropped: bool = False
    arrived: deque[tuple[Item, BlockBytes]] = field(default_factory=deque)
    held: int = 0
    change: threading.Condition = field(default_factory=threading.Condition)

    def take(self) -> tuple[Item, BlockBytes] | None:
        """What arrived next; None where nothing has."""
        with self.change:
            if not self.arrived:
                return None
            item, content = self.arrived.popleft()
            self.held -= content.nbytes
            self.change.notify_all()
            return item, content

    def wait(self, seconds: float) -> None:
        """Until something arrived, or it is over, or the time is."""
        with self.change:
            self.change.wait_for(lambda: self.arrived or self.over, seconds)

    def drop(self) -> None:
        """Nobody wants it any more."""
        with self.change:
            self.dropped = True
            self.arrived.clear()
            self.held = 0
            self.change.notify_all()


class Reader:
    """One thread, started with the first job."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, items: Sequence[Item]) -> Job:
        """Begins to read these, after the jobs before."""
        job = Job(items, over=not items)
        with self._wake:
            if items and not self._closed:
                self._jobs.append(job)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="store-reader", daemon=True)
                    self._thread.start()
                self._wake.notify()
            elif items:
                job.failed = job.over = True
        return job

    def close(self) -> None:
        """Reads nothing more; jobs that are left have failed."""
        with self._wake:
            self._closed = True
            jobs, self._jobs = [*self._jobs], deque()
            self._wake.notify()
        for job in jobs:
            _end(job, failed=True)
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._jobs or self._closed)
                if self._closed:
                    return
                job = self._jobs.popleft()
            _end(job, failed=not self._read_all(job))

    def _read_all(self, job: Job) -> bool:
        for item in job.items:
            if self._closed or job.dropped:
                return False
            content = self._read(item.name, item.tokens)
            if content is None:
                return False
            with job.change:
                job.arrived.append((item, content))
                job.held += content.nbytes
                job.change.notify_all()
                while job.held > AHEAD and not (job.dropped or self._closed):
                    job.change.wait(0.5)
        return True


def _end(job: Job, *, failed: bool) -> None:
    with job.change:
        job.failed, job.over = failed, True
        job.change.notify_all()
