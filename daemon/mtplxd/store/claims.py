"""Who may answer in a session: one at a time, in the order of asking, so that two conversations never interleave.

Names and turns of claim only; what a claim is for is its holder's. Safe from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future


class Claim:
    """The right to answer in a session, until released. `release` may be called more than once."""

    def __init__(self, claims: Claims, name: str) -> None:
        self._claims, self.name = claims, name
        self._held = True

    def release(self) -> None:
        """Lets the next one in."""
        self._claims._leave(self)


class Claims:
    """Of one daemon, in memory: a process that dies holds nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Future[Claim]]] = {}
        """By the name of each session that somebody holds: who waits for it."""

    def ask(self, name: str) -> Future[Claim]:
        """The claim, once nobody else has it. Cancelling the future gives up the place; `give_up` does so whenever."""
        future: Future[Claim] = Future()
        with self._lock:
            if name in self._waiting:
                self._waiting[name].append(future)
                return future
            self._waiting[name] = deque()
        future.set_running_or_notify_cancel()
        future.set_result(Claim(self, name))
        return future

    def take(self, name: str) -> Claim | None:
        """The claim, None where somebody has it."""
        with self._lock:
            if name in self._waiting:
                return None
            self._waiting[name] = deque()
        return Claim(self, name)

    def busy(self, name: str) -> bool:
        """Whether somebody has it."""
        with self._lock:
            return name in self._waiting

    def _leave(self, claim: Claim) -> None:
        with self._lock:
            if not claim._held:
                return
            claim._held = False
            queue = self._waiting[claim.name]
            heir = None
            while queue and heir is None:
                asked = queue.popleft()
                heir = asked if asked.set_running_or_notify_cancel() else None
            if heir is None:
                del self._waiting[claim.name]
        if heir is not None:
            heir.set_result(Claim(self, claim.name))


def give_up(asked: Future[Claim]) -> None:
    """Whoever asked is gone: a claim that it got all the same is released."""
    if not asked.cancel():
        asked.add_done_callback(_release)


def _release(asked: Future[Claim]) -> None:
    if not asked.cancelled() and asked.exception() is None:
        asked.result().release()
