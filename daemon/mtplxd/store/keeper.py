"""Keeps folder, index and memory of the store in step: what becomes durable in which order, what is taken away.

A block is written whole, renamed into place and its folder synced before the index has it, and the index before memory
has it: whoever finds a block finds one that a power cut leaves. One thread at a time (`turn`) changes files and index;
`lock` guards memory and is held only for moments. When it is asked to do what is decided outside.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from mtplxd.store import blockfile, codec
from mtplxd.store.blocks import Data, Offered
from mtplxd.store.filing import Filing, only_holder
from mtplxd.store.index import Index, parse_spent, read_only, spent_text
from mtplxd.store.keys import LAYOUT
from mtplxd.store.limits import Limits, WriteBudget, choose_evicted, to_free
from mtplxd.store.places import Places
from mtplxd.store.shelf import Entry, Shelf, root_of
from mtplxd.store.waiting import supersedes

NO_PARENT, LOW_DISK, BUDGET, NO_ROOM = "no parent", "low disk", "write budget", "no room"
MOST_QUARANTINED = 16
REPACK_PAYS = 0.98
"""What is packed tighter is written again if it takes no more than this share of what it took."""
INDEX_ROOM = 512 << 10
"""Bytes that the index grows by at most before its size is looked at again."""
FORMAT = f"{blockfile.VERSION} {LAYOUT}"
"""What the files that an index was made of are: none of another is served."""


class Keeper:
    """The store's folder. Raises OSError and sqlite3.Error; then `open` before the next change.

    `opened` says that memory knows what is there, `readable` that it could not be opened, but may be read. `made` is
    called whenever the folder had to be made.
    """

    def __init__(
        self,
        places: Places,
        limits: Limits,
        shelf: Shelf,
        lock: threading.Condition,
        filing: Filing,
        clock: Callable[[], float],
        made: Callable[[], object],
    ) -> None:
        self.places, self.limits, self.shelf, self.filing = places, limits, shelf, filing
        self.turn = threading.RLock()
        self.index: Index | None = None
        self.bytes_written = self.evicted = 0
        self.strays = self.quarantined_bytes = 0
        self._lock, self._clock, self._made = lock, clock, made
        self._budget = WriteBudget(limits.hourly_writes, clock())
        self._unrowed: set[bytes] = set()
        self._unwritten: dict[bytes, Entry] = {}
        self.opened = self.readable = False
        self._holding = contextlib.ExitStack()
        self._folders: set[Path] = set()
        self._too_large = 1

    def open(self) -> None:
        """Makes the folders, keeps others out and opens the index; memory has its blocks then. Where nothing can be
        written, memory has what can be read before it raises, unless another store writes there."""
        try:
            self._open()
        except BlockingIOError:
            self._holding.close()
            raise
        except (OSError, sqlite3.Error):
            self._holding.close()
            if not self.opened and self.places.blocks.is_dir():
                self.readable = True
                self._take(*read_only(self.places.index))
            raise

    def _open(self) -> None:
        self.close()
        if self.filing.make_folder(self.places.folder):
            self._made()
        for folder in (self.places.blocks, self.places.quarantine):
            self.filing.make_folder(folder)
        self.filing.sync_folder(self.places.folder)
        self.filing.sync_folder(self.places.folder.parent)
        self._folders.clear()
        self._holding.enter_context(only_holder(self.places.lock))
        index = self.index = Index(self.places.index)
        entries, notes = index.load(thorough=self.opened)
        if self.opened:  # memory has been right all along
            self._unwritten = {entry.name: entry for entry in self.entries()}
        else:
            self._take(entries, notes)
            self.opened = True

    def _take(self, entries: Iterable[Entry], notes: Mapping[str, str]) -> None:
        """Lets memory have what an index says."""
        with self._lock:
            for entry in entries if notes.get("format") == FORMAT else ():
                self.shelf.add(entry)
            spent = parse_spent(notes.get("spent"))
            self._budget = WriteBudget(self.limits.hourly_writes, self._clock(), spent)

    def close(self) -> None:
        """Lets go of the folder, with all that memory knows better in its index."""
        if (index := self.index) is not None:
            self.index = None
            with contextlib.suppress(sqlite3.Error):
                self._commit(index)
            with contextlib.suppress(sqlite3.Error):
                index.close()
        self._holding.close()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While it lasts no other store writes here, though this one may not be open. Raises OSError."""
        with contextlib.nullcontext() if self.index is not None else only_holder(self.places.lock):
            yield

    def store(self, batch: list[Offered], breathe: Callable[[], None]) -> list[tuple[Offered, str]]:
        """Makes blocks durable; gives those that do not fit, with the reason."""
        fitting, dropped = self._admit(batch)
        if not fitting:
            return dropped
        entries, replaced = [], []
        with self._held([offered.parent for offered in fitting]):
            sizes = self._write_all(fitting, breathe)
            with self._lock:
                for offered, size in zip(fitting, sizes, strict=True):
                    entries.append(self._entry_of(offered, size, codec.FAST))
                    replaced += self._superseded_by(offered)
            self.commit(put=entries)
            with self._lock:
                for entry in entries:
                    self.shelf.add(entry)
        self.take_away(replaced, "superseded")
        return dropped

    def repack(self, entry: Entry, offered: Offered) -> int:
        """Packs a block tighter if it is still what it was and that pays; gives the bytes it frees."""
        pieces = [*blockfile.write(offered, codec.TIGHT)]
        size = sum(len(piece) for piece in pieces)
        with self._held([entry.name]):
            if self.shelf.get(entry.name) is not entry:
                return 0
            if size > entry.kept.stored_bytes * REPACK_PAYS:
                entry.packed = codec.TIGHT
                self._unwritten[entry.name] = entry
                return 0
            if self._budget.left(self._clock()) < size or not self.make_room(size):
                return 0
            self._write(offered.name, pieces)
            self._put_in_place([offered.name])
            with self._lock:
                packed = self._entry_of(offered, size, codec.TIGHT)
                packed.used = entry.used
                self.shelf.add(packed)
            self.commit(put=[packed])
        return entry.kept.stored_bytes - size

    def take_away(self, names: Iterable[bytes], why: str, *, followers: bool = False) -> int:
        """Removes blocks, and with `followers` what cannot be reached without them, first from memory; gives the bytes
        that frees."""
        names = [*names]
        with self._lock:
            freed = self._take_out(names, why)
            if followers:
                more = self.shelf.unreachable()
                freed += self._take_out(more, why)
                names += more
        for name in names:
            self.filing.remove(self.places.block(name))
        return freed

    def _take_out(self, names: Iterable[bytes], why: str) -> int:
        freed = 0
        for name in names:
            entry = self.shelf.remove(name, why)
            freed += entry.kept.stored_bytes if entry else 0
            self._note_unrowed(name)
        return freed

    def clear_index(self) -> None:
        """Takes all rows from the index, as there is no block any more, and gives their space back."""
        self._unwritten.clear()
        self._unrowed.clear()
        if self.index is not None:
            self.index.clear()

    def remove_all(self) -> int:
        """Removes all blocks and all else below the folder of blocks and the quarantine, from memory as well; gives
        the bytes that frees."""
        before = self.taken()
        with self._lock:
            for entry in self.shelf:
                self.shelf.remove(entry.name, "cleared")
        for folder in (*self._below(self.places.blocks), self.places.quarantine):
            for listed in self.filing.listing(folder):
                if not listed.folder:
                    self.filing.remove(folder / listed.name)
            self.filing.sync_folder(folder)
        self.quarantined_bytes = self.strays = 0
        return max(0, before - self.taken())

    def entries(self) -> list[Entry]:
        """All blocks that memory has."""
        with self._lock:
            return [*self.shelf]

    def unreachable(self) -> list[bytes]:
        """Blocks whose beginning is not there."""
        with self._lock:
            return self.shelf.unreachable()

    def take_in(self, entry: Entry, *, latest: bool) -> None:
        """Lets memory have a block whose file was found, as the latest used or the one to go first."""
        with self._lock:
            if latest:
                self.shelf.tick += 1
                entry.used = self.shelf.tick
            self.shelf.add(entry)
        self._unwritten[entry.name] = entry

    def forget(self, names: Iterable[bytes], why: str) -> int:
        """Takes blocks from memory, and with the next commit from the index; gives how many were there."""
        count = 0
        for name in names:
            with self._lock:
                count += self.shelf.remove(name, why) is not None
            self._note_unrowed(name)
        return count

    def set_aside(self, name: bytes) -> None:
        """Moves the file of a block that memory does not have any more where nobody reads it."""
        listed = sorted(self.filing.listing(self.places.quarantine), key=lambda each: each.name)
        for old in listed[: max(0, len(listed) + 1 - MOST_QUARANTINED)]:
            self.filing.remove(self.places.quarantine / old.name)
        self._note_unrowed(name)
        with contextlib.suppress(FileNotFoundError):
            self.filing.rename(self.places.block(name), self.places.quarantined(name))
        self.quarantined_bytes = sum(each.nbytes for each in self.filing.listing(self.places.quarantine))

    def empty_quarantine(self) -> int:
        """Removes what was set aside; gives the bytes that frees."""
        freed = 0
        for old in self.filing.listing(self.places.quarantine):
            self.filing.remove(self.places.quarantine / old.name)
            freed += old.nbytes
        self.quarantined_bytes = 0
        return freed

    def make_room(self, coming: int) -> bool:
        """Evicts until so many more bytes fit; False where they do not."""
        need = to_free(self.limits, self.taken(), coming)
        if need:
            with self._lock:
                blocks = [*self.shelf]
            for name in choose_evicted(blocks, need):
                with self._lock:
                    entry = self.shelf.get(name)
                    if entry is None or entry.holds or self.shelf.has_followers(name):
                        continue
                self.take_away([name], "evicted")
                self.evicted += 1
        return self.taken() + coming <= self.limits.size

    def taken(self) -> int:
        """Bytes the folder takes: blocks, index, what is in quarantine, what others put there."""
        files = sum(each.nbytes for each in self.filing.listing(self.places.folder)) + INDEX_ROOM
        return self.shelf.nbytes + files + self.quarantined_bytes + self.strays

    def commit(self, put: Iterable[Entry] = ()) -> None:
        """Brings the index up to memory, with these blocks on top."""
        if self.index is None:
            raise sqlite3.OperationalError("no index")
        self._commit(self.index, put)

    def _commit(self, index: Index, put: Iterable[Entry] = ()) -> None:
        put = [*self._unwritten.values(), *put]
        with self._lock:
            touched = [(entry.name, entry.used) for entry in self._touched()]
            gone = self._unrowed - {entry.name for entry in put}
        notes = [("spent", spent_text(self._budget.ages(self._clock()))), ("format", FORMAT)]
        index.commit(put, gone, touched, notes)
        with self._lock:
            self.shelf.touched.difference_update(name for name, _ in touched)
        self._unrowed.clear()
        self._unwritten.clear()

    def _below(self, folder: Path) -> list[Path]:
        return [folder / listed.name for listed in self.filing.listing(folder) if listed.folder]

    def _note_unrowed(self, name: bytes) -> None:
        self._unrowed.add(name)
        self._unwritten.pop(name, None)

    def _touched(self) -> Iterator[Entry]:
        for name in [*self.shelf.touched]:
            if (entry := self.shelf.get(name)) is not None:
                yield entry

    def _admit(self, batch: list[Offered]) -> tuple[list[Offered], list[tuple[Offered, str]]]:
        """Those that may be written now, in their order, and the others with the reason."""
        fitting, dropped = self._choose(batch, self._bounds())
        if fitting:
            with self._held([offered.parent for offered in fitting]):
                self.make_room(sum(blockfile.most_bytes(offered) for offered in fitting))
            fitting, without_room = self._choose(fitting, [(self.limits.size - self.taken(), NO_ROOM)])
            dropped += without_room
        return fitting, dropped

    def may_write(self) -> bool:
        """Whether the limits leave room for the block that they left none for last."""
        return all(left >= self._too_large for left, _ in self._bounds())

    def _bounds(self) -> list[tuple[int, str]]:
        """The bytes that may be written now, by each limit."""
        free = self.filing.free(self.places.folder) - self.limits.free_floor
        return [(free, LOW_DISK), (self._budget.left(self._clock()), BUDGET)]

    def _choose(
        self, batch: list[Offered], bounds: list[tuple[int, str]]
    ) -> tuple[list[Offered], list[tuple[Offered, str]]]:
        """Those whose beginning is kept and that are within these bytes together."""
        chosen: dict[bytes, Offered] = {}
        dropped: list[tuple[Offered, str]] = []
        total = 0
        for offered in batch:
            size = total + blockfile.most_bytes(offered)
            reason = next((reason for bound, reason in bounds if size > bound), "")
            if offered.parent != offered.identity and offered.parent not in chosen:
                with self._lock:
                    reason = reason if offered.parent in self.shelf else NO_PARENT
            if reason:
                dropped.append((offered, reason))
                self._too_large = blockfile.most_bytes(offered)
            else:
                chosen[offered.name], total = offered, size
        return [*chosen.values()], dropped

    def _write_all(self, batch: list[Offered], breathe: Callable[[], None]) -> list[int]:
        try:
            sizes = [
                self._write(offered.name, _paced(blockfile.write(offered, codec.FAST), breathe))
                for offered in batch
            ]
            self._put_in_place([offered.name for offered in batch])
        except OSError:
            for offered in batch:
                with contextlib.suppress(OSError):
                    self.filing.remove(self.places.unfinished(offered.name))
            raise
        return sizes

    def _write(self, name: bytes, pieces: Iterable[Data]) -> int:
        folder, path = self.places.shelf(name), self.places.unfinished(name)
        if folder not in self._folders:
            self.filing.make_folder(folder)
            self.filing.sync_folder(self.places.blocks)
            self._folders.add(folder)
        self.filing.remove(path)
        size = self.filing.write(path, pieces)
        self._budget.spend(size, self._clock())
        self.bytes_written += size
        return size

    def _put_in_place(self, names: list[bytes]) -> None:
        for name in names:
            self.filing.rename(self.places.unfinished(name), self.places.block(name))
        for folder in {self.places.shelf(name) for name in names}:
            self.filing.sync_folder(folder)

    def _entry_of(self, offered: Offered, size: int, packed: int) -> Entry:
        self.shelf.tick += 1
        root = root_of(offered.parent, offered.identity, offered.tokens)
        return Entry(offered.kept(size), self.shelf.tick, packed, root)

    def _superseded_by(self, offered: Offered) -> list[bytes]:
        out = []
        for tail in self.shelf.tails(offered.parent):
            entry = self.shelf.get(tail.name)
            if entry and not entry.holds and supersedes(offered, tail.name, tail.length, tail.grade):
                out.append(tail.name)
        return out

    @contextlib.contextmanager
    def _held(self, names: list[bytes]) -> Iterator[None]:
        with self._lock:
            held = self.shelf.hold(names)
        try:
            yield
        finally:
            with self._lock:
                self.shelf.release(held)


def _paced(pieces: Iterable[Data], breathe: Callable[[], None]) -> Iterator[Data]:
    for piece in pieces:
        yield piece
        breathe()
