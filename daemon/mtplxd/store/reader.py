"""Reads blocks on a thread of its own, so that nobody who decodes waits for a disk. Knows names, no model, no policy.

What was read and not taken yet, of all jobs together, is bounded in bytes, the block that is being read included; a
job that is given up is not read on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mtplxd.store.blocks import BlockBytes

AHEAD = 64 << 20
"""Most bytes that wait to be taken, unless a single block is larger."""

Read = Callable[[bytes, Sequence[int]], BlockBytes | None]


@dataclass(frozen=True, slots=True)
class Item:
    """A block to read: its place in a path, which part of it, its name, its tokens and the bytes it will hold."""

    place: int
    part: str
    name: bytes
    tokens: tuple[int, ...]
    nbytes: int = 0


class Ahead:
    """Bytes of all jobs that were read, or are being read, and not taken; `change` guards them and the jobs."""

    def __init__(self) -> None:
        self.limit = AHEAD
        self.held = 0
        self.change = threading.Condition()

    def has_room(self, nbytes: int) -> bool:
        """Whether so many more may be read; one block always may alone."""
        return not self.held or self.held + nbytes <= self.limit

    def bound(self, limit: int) -> None:
        """From now on at most so many, and never more than AHEAD."""
        with self.change:
            self.limit = min(limit, AHEAD)
            self.change.notify_all()


@dataclass(slots=True)
class Job:
    """Blocks to read, in order. It has `failed` where one was not to be had; what comes after that is not read."""

    items: Sequence[Item]
    failed: bool = False
    over: bool = False
    dropped: bool = False
    arrived: deque[tuple[Item, BlockBytes]] = field(default_factory=deque)
    ahead: Ahead = field(default_factory=Ahead)

    def take(self) -> tuple[Item, BlockBytes] | None:
        """What arrived next; None where nothing has."""
        with self.ahead.change:
            if not self.arrived:
                return None
            item, content = self.arrived.popleft()
            self.ahead.held -= item.nbytes
            self.ahead.change.notify_all()
            return item, content

    def wait(self, seconds: float) -> None:
        """Until something arrived, or it is over, or the time is."""
        with self.ahead.change:
            self.ahead.change.wait_for(lambda: self.arrived or self.over, seconds)

    def drop(self) -> None:
        """Nobody wants it any more."""
        with self.ahead.change:
            self.dropped = True
            self.ahead.held -= sum(item.nbytes for item, _ in self.arrived)
            self.arrived.clear()
            self.ahead.change.notify_all()


class Reader:
    """One thread, started with the first job."""

    def __init__(self, read: Read) -> None:
        self.ahead = Ahead()
        self._read = read
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, items: Sequence[Item]) -> Job:
        """Begins to read these, after the jobs before."""
        job = Job(items, over=not items, ahead=self.ahead)
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
        with self.ahead.change:
            self.ahead.change.notify_all()
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
            if not self._reserve(job, item):
                return False
            content = self._read(item.name, item.tokens)
            with self.ahead.change:
                if content is None or job.dropped:
                    self.ahead.held -= item.nbytes
                    self.ahead.change.notify_all()
                    return False
                job.arrived.append((item, content))
                self.ahead.change.notify_all()
        return True

    def _reserve(self, job: Job, item: Item) -> bool:
        """Waits until there is room for a block; False where nobody wants it any more."""
        with self.ahead.change:
            self.ahead.change.wait_for(
                lambda: job.dropped or self._closed or self.ahead.has_room(item.nbytes)
            )
            if job.dropped or self._closed:
                return False
            self.ahead.held += item.nbytes
            return True


def _end(job: Job, *, failed: bool) -> None:
    with job.ahead.change:
        job.failed, job.over = failed, True
        job.ahead.change.notify_all()
