"""The store on disk, as everybody else sees it: blocks are offered, looked up, read back, and thrown away by policy.

It owns who may call what when, and what is counted. How a block becomes a file is `blockfile`'s and `codec`'s, how
files are touched `filing`'s, their order `keeper`'s, what must go `limits`', when it is written `writer`'s.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mtplxd.errors import FailedPrecondition
from mtplxd.store import blockfile, codec
from mtplxd.store.blocks import BlockBytes, Kept, Offered
from mtplxd.store.filing import Filing, RealFiling, Scratch
from mtplxd.store.health import CLOSED, OPENING, READY, Health, describe, is_full
from mtplxd.store.keeper import NO_PARENT, Keeper
from mtplxd.store.keys import digest
from mtplxd.store.limits import Limits
from mtplxd.store.places import Places
from mtplxd.store.reconcile import reconcile
from mtplxd.store.shelf import Entry, Shelf
from mtplxd.store.waiting import Waiting
from mtplxd.store.writer import FAULT, SUPERSEDED, Writer

NEW, EVICTED, QUARANTINED, UNREADABLE, LOST, CLEARED, DROPPED, OTHER_TOKENS, WAITING, NOT_OPEN = MISSES = (
    "new", "evicted", "quarantined", "unreadable", "lost", "cleared", "dropped", "other tokens", "waiting", "not open",
)  # fmt: skip
"""Why a block is not there: never seen or no longer remembered; gone for room; damaged; the disk would not give it;
its file vanished; taken away on purpose; never written (see `DiskCounts`); there, but of other tokens; not yet written;
the store could not be opened. `superseded` are tails of which a longer block has all."""
QUEUE_FULL = "queue full"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskCounts:
    """What is kept, in `blocks`, bytes of files and bytes of tensors (`raw_bytes`), and sums since the start.

    `miss_reasons` count by the words of MISSES, `drop_reasons` those that were not written: `queue full`, `no parent`,
    `low disk`, `write budget`, `no room`, `disk fault`, `superseded`, `cleared`, `closed`. `state` is `opening`,
    `ready`, `paused` (by a limit), `degraded` (by a fault) or `closed`, `reason` says why; reads go on. `waiting` are
    the bytes not yet written, `limit` those the store may take.
    """

    blocks: int = 0
    nbytes: int = 0
    raw_bytes: int = 0
    hits: int = 0
    misses: int = 0
    miss_reasons: dict[str, int] = field(default_factory=dict)
    drop_reasons: dict[str, int] = field(default_factory=dict)
    evicted: int = 0
    quarantined: int = 0
    reclaimed: int = 0
    bytes_written: int = 0
    waiting: int = 0
    limit: int = 0
    state: str = "opening"
    reason: str = ""
    faults: int = 0
    last_fault: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of looking at every block. `bad` were quarantined."""

    blocks: int
    nbytes: int
    bad: int


class DiskStore:
    """Blocks below `folder`, safe from any thread. What the disk does is counted and named; only those who tidy by hand
    (`prune`, `discard`, `clear`, `recompress`) hear of it as FailedPrecondition.

    `busy` tells whether somebody decodes right now, who must not be slowed down; `lower_priority` is called once on
    the writer's thread, `made` whenever the folder had to be made; `clock` only goes forward.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        *,
        busy: Callable[[], bool] = lambda: False,
        lower_priority: Callable[[], object] = lambda: None,
        filing: Filing | None = None,
        clock: Callable[[], float] = time.monotonic,
        made: Callable[[], object] = lambda: None,
    ) -> None:
        self._filing: Filing = filing or RealFiling()
        self._scratch = Scratch()
        self._places = Places(folder)
        self._lock = threading.Condition()
        self._shelf = Shelf()
        self._waiting = Waiting(limits.queue)
        self._health = Health()
        self._misses: Counter[str] = Counter()
        self._hits = 0
        self._limits, self._clock, self._busy = limits, clock, busy
        self._keeper = Keeper(self._places, limits, self._shelf, self._lock, self._filing, clock, made)
        self._writer = Writer(
            self._keeper,
            self._lock,
            self._waiting,
            self._health,
            busy,
            lower_priority,
            clock,
            self._pack_idle,
        )
        try:
            self._keeper.open()
        except (OSError, sqlite3.Error) as error:
            self._health.note_fault(describe(error), clock())
        self._writer.start()

    def offer(self, offered: Offered) -> bool:
        """Takes a block to be written; never waits. False where it is dropped, which is counted with its reason.
        True also where it is kept already. Raises ValueError for a name that is not that of its tokens."""
        if digest(offered.parent, offered.tokens) != offered.name:
            raise ValueError("a block under the name of another")
        with self._lock:
            grade = self._grade(offered.name)
            if grade is not None and grade >= offered.grade:
                self._shelf.touch([offered.name])
                return True
            if reason := self._refusal(offered):
                self._writer.drop(offered, reason)
                return False
            for tail in self._waiting.put(offered):
                self._writer.drop(tail, SUPERSEDED)
            self._lock.notify_all()
            return True

    def find(self, name: bytes) -> Kept | None:
        """What is known of a block that can be read, from memory. Counts nothing."""
        with self._lock:
            entry = self._shelf.get(name)
            return entry.kept if entry else None

    def grade(self, name: bytes) -> int | None:
        """The grade of a block that is there, or will be once what waits is written; None where it is neither."""
        with self._lock:
            return self._grade(name)

    def follows(self, parent: bytes) -> bool:
        """Whether any block comes behind this one, or behind an identity, from memory."""
        with self._lock:
            return self._shelf.has_followers(parent)

    def touch(self, names: Iterable[bytes]) -> None:
        """Makes these blocks the latest used, though nobody reads them. Unknown names are passed over."""
        with self._lock:
            self._shelf.touch(names)

    def tails(self, parent: bytes) -> list[Kept]:
        """The tails behind a block, or behind an identity, the longest first, from memory."""
        with self._lock:
            return self._shelf.tails(parent)

    def roots(self, tokens: Sequence[int]) -> list[Kept]:
        """The first blocks of just these tokens, of any identity: what tells another model's from never seen."""
        with self._lock:
            return self._shelf.roots(tokens)

    def why(self, name: bytes) -> str:
        """Why a block is not there, one of MISSES: `new` where nothing is known of it."""
        with self._lock:
            return self._why(name)

    def read(self, name: bytes, tokens: Sequence[int]) -> BlockBytes | None:
        """The content of a block of these tokens, in fresh memory, every checksum checked; None where it is not to be
        had, which is counted with its reason. Takes milliseconds: never on the engine's thread while a stream runs."""
        with self._lock:
            entry = self._shelf.get(name)
            reason = self._why(name)
        if entry is not None:
            loaded = self._load(entry)
            if isinstance(loaded, str):
                reason = loaded
            elif loaded[0].tokens != tuple(tokens):
                reason = OTHER_TOKENS
            else:
                with self._lock:
                    self._hits += 1
                    self._shelf.touch([name])
                return loaded[1]
        with self._lock:
            self._misses[reason] += 1
        return None

    @contextmanager
    def holding(self, names: Iterable[bytes]) -> Iterator[None]:
        """While it lasts these blocks are not evicted; they are the latest used then. Unknown names are passed over."""
        with self._lock:
            held = self._shelf.hold(names)
            self._shelf.touch(held)
        try:
            yield
        finally:
            with self._lock:
                self._shelf.release(held)

    def takes(self, nbytes: int) -> bool:
        """Whether a block of so many bytes of tensors may be offered now without being dropped for want of room: any
        where nothing waits."""
        with self._lock:
            return self._waiting.has_room(nbytes)

    @property
    def writable(self) -> bool:
        """Whether what is offered is written, as far as is known: neither a limit nor a fault is in the way."""
        return self._health.state in (OPENING, READY)

    def bound_queue(self, nbytes: int) -> None:
        """At most so many bytes of tensors wait to be written, and never more than the limits say. Takes no lock."""
        self._waiting.limit = min(self._limits.queue, nbytes)

    def counts(self) -> DiskCounts:
        """What is kept and what came of it, as of now."""
        with self._lock:
            return DiskCounts(
                blocks=len(self._shelf),
                nbytes=self._shelf.nbytes,
                raw_bytes=self._shelf.raw_bytes,
                hits=self._hits,
                misses=self._misses.total(),
                miss_reasons=dict(self._misses),
                drop_reasons=dict(self._writer.drops),
                evicted=self._keeper.evicted,
                quarantined=self._writer.quarantined,
                reclaimed=self._writer.reclaimed,
                bytes_written=self._keeper.bytes_written,
                waiting=self._waiting.nbytes,
                limit=self._limits.size,
                state=self._health.state,
                reason=self._health.reason,
                faults=self._health.faults,
                last_fault=self._health.last_fault,
            )

    def verify(self, progress: Callable[[int, int], bool] = lambda _done, _all: True) -> Verified:
        """Reads and checks every block; `progress(done, all)` hears of each and stops it with False."""
        entries = self._keeper.entries()
        blocks = nbytes = bad = 0
        for done, entry in enumerate(entries, 1):
            if self.find(entry.name) is not None:
                loaded = self._load(entry, thorough=True)
                bad += isinstance(loaded, str) and loaded in (QUARANTINED, UNREADABLE)
                blocks += not isinstance(loaded, str)
                nbytes += 0 if isinstance(loaded, str) else entry.kept.stored_bytes
            if not progress(done, len(entries)):
                break
        if bad:
            self.flush()
        return Verified(blocks, nbytes, bad)

    def prune(self) -> int:
        """Removes what nobody can use: what was quarantined, leftovers, blocks whose beginning is gone, what is over
        the limits. Gives the bytes it freed."""
        freed = []

        def tidy(keeper: Keeper) -> None:
            result = reconcile(keeper)
            self._writer.note(result)
            freed.append(result.freed)

        return self._remove(Keeper.empty_quarantine, tidy) + sum(freed)

    def discard(self, names: Iterable[bytes]) -> int:
        """Removes these blocks and those that cannot be reached without them, waiting ones included, and whatever is in
        quarantine, as it may be of the same text; gives the bytes it freed."""
        names = [*names]
        self._drop_waiting(names)
        return self._remove(
            lambda keeper: keeper.take_away(names, CLEARED, followers=True) + keeper.empty_quarantine(),
            Keeper.commit,
        )

    def clear(self) -> int:
        """Removes all blocks, waiting ones included; gives the bytes it freed. Held ones too: they are copies."""
        self._drop_waiting(None)

        def remove(keeper: Keeper) -> int:
            self._drop_waiting(None)
            return keeper.remove_all()

        return self._remove(remove, Keeper.clear_index)

    def flush(self, timeout: float | None = None) -> bool:
        """Waits until all that was offered before is durable or dropped; False where the time (seconds) is over."""
        with self._writer.hurrying():
            return self._writer.wait_done(timeout)

    def recompress(self, idle: Callable[[], bool]) -> int:
        """Packs blocks tighter as long as `idle()`, the least recently used first; gives the bytes it freed.

        It takes long. The writer does so by itself while nobody works and the store is more than half full: what is
        less is not worth the writing."""
        freed = 0
        for entry in sorted(self._keeper.entries(), key=lambda entry: entry.used):
            if entry.packed >= codec.TIGHT:
                continue
            if not idle():
                break
            loaded = self._load(entry)
            if isinstance(loaded, str):
                continue
            with self._turn() as keeper:
                freed += keeper.repack(entry, loaded[0].offered(loaded[1]))
        return freed

    def close(self, timeout: float | None = None) -> bool:
        """Flushes within the time and lets go of the folder; False where something that was offered is lost."""
        done = self.flush(timeout)
        lost = self._drop_waiting(None, CLOSED)
        with self._lock:
            self._health.close()
        stopped = self._writer.stop(timeout)
        if stopped:
            with self._keeper.turn:
                self._keeper.close()
        return done and stopped and not lost

    def _pack_idle(self, idle: Callable[[], bool]) -> None:
        with self._keeper.turn:
            needed = self._keeper.taken() > self._limits.size // 2
        if needed:
            with suppress(FailedPrecondition):
                self.recompress(idle)

    def _grade(self, name: bytes) -> int | None:
        entry, waits = self._shelf.get(name), self._waiting.get(name)
        found = [*([entry.kept.grade] if entry else ()), *([waits.grade] if waits else ())]
        return max(found, default=None)

    def _refusal(self, offered: Offered) -> str:
        """Why a block is not taken; empty where it is."""
        if self._health.state == CLOSED:
            return CLOSED
        if not self._health.may_try(self._clock()):
            return FAULT
        if not self._waiting.has_room(offered.content.nbytes):
            return QUEUE_FULL
        follows = offered.parent == offered.identity or offered.parent in self._shelf
        if not follows and self._waiting.get(offered.parent) is None and self._health.state != OPENING:
            return NO_PARENT
        return ""

    def _why(self, name: bytes) -> str:
        if self._waiting.get(name) is not None:
            return WAITING
        return self._shelf.why(name) or (NEW if self._keeper.opened else NOT_OPEN)

    def _load(self, entry: Entry, *, thorough: bool = False) -> tuple[blockfile.Header, BlockBytes] | str:
        """A block from its file, or why it cannot be had; a damaged one is taken away."""
        try:
            data = self._filing.read_over(self._places.block(entry.name), self._scratch)
            header, content = blockfile.read(data, thorough=thorough)
            if header.name == entry.name:
                return header, content
            reason = QUARANTINED
        except FileNotFoundError:
            reason = LOST
        except OSError:
            reason = UNREADABLE
        except (blockfile.Damaged, blockfile.Foreign):
            reason = QUARANTINED
        with self._lock:
            if self._shelf.get(entry.name) is not entry:  # replaced or taken away meanwhile
                return self._shelf.why(entry.name) or LOST
            log.warning(
                "a stored block of %d tokens is not to be had (%s): it is computed again",
                entry.kept.length,
                reason,
            )
            self._shelf.remove(entry.name, reason)
            self._writer.set_aside(entry.name, damaged=reason != LOST)
        return reason

    def _drop_waiting(self, names: Iterable[bytes] | None, reason: str = CLEARED) -> int:
        with self._lock:
            left = self._waiting.drop(names)
            for offered in left:
                self._writer.drop(offered, reason)
            return len(left)

    def _remove(self, removing: Callable[[Keeper], int], noting: Callable[[Keeper], object]) -> int:
        """Removes files, then notes that they are gone; gives the bytes that frees. On a full disk, where nothing can
        be noted before, and perhaps not even then, they go all the same: the index is brought up to that later."""
        freed = 0
        try:
            with self._turn() as keeper:
                freed += removing(keeper)
                noting(keeper)
                return freed
        except FailedPrecondition as error:
            if not is_full(error.__cause__):
                raise
        try:
            with self._turn(after_fault=False) as keeper, keeper.alone():
                freed += removing(keeper)
            with self._turn() as keeper:
                noting(keeper)
        except FailedPrecondition as error:
            if not (freed and is_full(error.__cause__)):
                raise
        return freed

    @contextmanager
    def _turn(self, *, after_fault: bool = True) -> Iterator[Keeper]:
        """The folder for oneself, as soon as the writer is done with what it writes; opened anew after a fault, which
        is over once that and the work went well."""
        with self._writer.hurrying(), self._keeper.turn:
            if self._health.state == CLOSED:
                raise FailedPrecondition("the prompt store is closed")
            try:
                if after_fault:
                    self._writer.refresh()
                yield self._keeper
            except (OSError, sqlite3.Error) as error:
                with self._lock:
                    self._health.note_fault(describe(error), self._clock())
                raise FailedPrecondition(describe(error)) from error
            with self._lock:
                if after_fault and self._health.faulty:
                    self._health.note_written()
