"""The thread that writes blocks and keeps the store's folder tidy, out of the way of those who decode.

It only ever sees bytes. What it could not write is dropped and counted, never tried again by itself: the blocks are
offered again when they are computed again.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mtplxd.store.blocks import Offered
from mtplxd.store.health import OPENING, PAUSED, Health, describe
from mtplxd.store.keeper import BUDGET, LOW_DISK, Keeper
from mtplxd.store.pacing import Pace
from mtplxd.store.reconcile import Reconciled, look_over, reconcile
from mtplxd.store.waiting import Waiting

log = logging.getLogger(__name__)

BATCH_BYTES, BATCH = 16 << 20, 64
TIDY_S = 5.0
IDLE_S = 30.0
"""Nothing to write and nobody decoding for so long is idle."""
FAULT, SUPERSEDED = "disk fault", "superseded"
_PAUSES = {
    LOW_DISK: "too little free space on the store's volume: free some, or lower store_free_floor",
    BUDGET: "the store's hourly write budget is used up: it goes on by itself, or raise store_write_budget",
}


class Writer:
    """Takes turns at `keeper` with those who tidy by hand. `lock` is also what wakes it; `waiting`, `health` and the
    counts are only touched with it."""

    def __init__(
        self,
        keeper: Keeper,
        lock: threading.Condition,
        waiting: Waiting,
        health: Health,
        busy: Callable[[], bool],
        lower_priority: Callable[[], object],
        clock: Callable[[], float],
        when_idle: Callable[[Callable[[], bool]], object],
    ) -> None:
        self.drops: Counter[str] = Counter()
        self.quarantined = self.reclaimed = 0
        self._keeper, self._lock, self._waiting, self._health = keeper, lock, waiting, health
        self._gone: deque[bytes] = deque()
        self._hurried = 0
        self._stopping = False
        self._clock = clock
        self._pace = Pace(lambda: not self._in_a_hurry() and busy(), self._rest, clock)
        self._lower_priority, self._busy, self._when_idle = lower_priority, busy, when_idle
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Begins with what `reconcile` does."""
        self._thread.start()

    def stop(self, timeout: float | None) -> bool:
        """Ends the thread once nothing waits any more; False where it takes longer."""
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def set_aside(self, name: bytes, *, damaged: bool) -> None:
        """Has the file of a block, if there is one, moved to quarantine, soon; the lock is held."""
        self.quarantined += damaged
        self._gone.append(name)
        self._lock.notify_all()

    def drop(self, offered: Offered, reason: str) -> None:
        """Counts a block that is not written; the lock is held."""
        self.drops[reason] += 1
        if reason != SUPERSEDED and offered.name not in self._keeper.shelf:
            self._keeper.shelf.note_gone(offered.name, "dropped")

    @contextmanager
    def hurrying(self) -> Iterator[None]:
        """While it lasts it does not rest."""
        with self._lock:
            self._hurried += 1
            self._lock.notify_all()
        try:
            yield
        finally:
            with self._lock:
                self._hurried -= 1

    def wait_done(self, timeout: float | None) -> bool:
        """Until what waits now, and what is to be set aside, is done; False where the time is over."""
        with self._lock:
            names = set(self._waiting.names())

            def done() -> bool:
                names.intersection_update(self._waiting.names())
                return not names and not self._gone and self._health.state != OPENING

            return self._lock.wait_for(done, timeout)

    def refresh(self) -> None:
        """Opens the folder anew after a fault; needs the turn. Raises OSError and sqlite3.Error."""
        with self._lock:
            faulty, first = self._health.faulty, self._health.state == OPENING
        if faulty or self._keeper.index is None:
            self._keeper.open()
        elif not first:
            return
        self.note(reconcile(self._keeper))

    def note(self, result: Reconciled) -> None:
        """Counts what came of it."""
        with self._lock:
            self.quarantined += result.set_aside
            self.reclaimed += result.reclaimed

    def _run(self) -> None:
        self._lower_priority()
        self._look_over()
        self._work([])
        rested = False
        while True:
            with self._lock:
                due = bool(self._keeper.shelf.touched) or self._health.faulty or self._health.state == PAUSED
                woken = self._lock.wait_for(self._has_work, TIDY_S if due else None if rested else IDLE_S)
                if self._stopping and not len(self._waiting):
                    return
                batch = self._waiting.take(BATCH_BYTES, BATCH)
            if woken or due:
                rested = False
                self._work(batch)
            elif not self._busy():
                rested = True
                self._when_idle(self._is_idle)

    def _look_over(self) -> None:
        """What lies in a folder that could not be opened can be read all the same."""
        with self._lock:
            faulty = self._health.faulty
        if faulty and self._keeper.readable:
            try:
                with self._keeper.turn:
                    look_over(self._keeper)
            except Exception as error:  # as when writing: it would be the end of the thread
                log.warning("%s", describe(error), exc_info=None if isinstance(error, OSError) else error)

    def _is_idle(self) -> bool:
        with self._lock:
            return not self._has_work() and not self._busy()

    def _has_work(self) -> bool:
        return self._stopping or bool(self._gone) or len(self._waiting) > 0

    def _work(self, batch: list[Offered]) -> None:
        with self._keeper.turn:
            dropped = self._write(batch)
        with self._lock:
            for offered, reason in dropped:
                self.drop(offered, reason)
            self._waiting.finish()
            self._lock.notify_all()

    def _write(self, batch: list[Offered]) -> list[tuple[Offered, str]]:
        """Makes a batch durable; gives those that are not, with the reason."""
        with self._lock:
            if not self._health.may_try(self._clock()):
                self._gone.clear()
                return [(offered, FAULT) for offered in batch]
        try:
            self.refresh()
            self._tidy()
            self._pace.begin()
            dropped = self._keeper.store(batch, self._pace.breathe)
            if len(dropped) == len(batch):
                self._keeper.commit()
            tried = len(batch) > 0 or self._keeper.may_write()
        except (
            Exception
        ) as error:  # also a bug of ours: without this thread nothing would be written any more
            with self._lock:
                self._health.note_fault(describe(error), self._clock())
            unforeseen = not isinstance(error, OSError | sqlite3.Error)
            log.warning("%s", describe(error), exc_info=error if unforeseen else None)
            return [(offered, FAULT) for offered in batch]
        self._note_limits(dropped, tried=tried)
        return dropped

    def _note_limits(self, dropped: list[tuple[Offered, str]], *, tried: bool) -> None:
        """A pause ends with a try that no limit forbids, or where none would any more: whoever has to know that first
        does not try."""
        paused = [_PAUSES[reason] for _, reason in dropped if reason in _PAUSES]
        with self._lock:
            if tried or self._health.state != PAUSED:
                self._health.note_written()
            if paused:
                self._health.note_pause(paused[0])
                log.info("%d blocks are not kept: %s", len(paused), paused[0])

    def _tidy(self) -> None:
        while True:
            with self._lock:
                if not self._gone:
                    return
                name = self._gone.popleft()
            self._keeper.set_aside(name)

    def _in_a_hurry(self) -> bool:
        return self._hurried > 0 or self._stopping

    def _rest(self, seconds: float) -> None:
        with self._lock:
            self._lock.wait_for(self._in_a_hurry, seconds)
