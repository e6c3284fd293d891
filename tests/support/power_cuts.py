"""A file system that writes down what it is asked, and every state that a power cut may leave of it.

What was written is durable once its file was synced, a name once its folder was. Of what was asked since, anything may
have reached the disk and anything may not; a file that was being written is torn. The index is SQLite's: it is whole,
at some commit up to the latest, or gone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mtplxd.store.blocks import Data
from mtplxd.store.disk import DiskStore
from mtplxd.store.limits import Limits
from mtplxd.store.places import Places
from support.block_store import (
    PLENTY,
    WAIT_S,
    MemoryFiling,
    chain_of,
    content_of,
    keep,
    offered_of,
    open_store,
    same,
)

ALL_SUBSETS = 4
"""So many unsynced names lost or kept in all combinations; of more, a choice."""
Index = tuple[bytes, bytes] | None


@dataclass(frozen=True)
class Asked:
    """One call. `kept` are the blocks that were acknowledged before it, `index` the index's files as they were."""

    what: str
    path: Path
    other: Path | None
    data: bytes
    kept: frozenset[bytes]
    index: Index


class Recorder(MemoryFiling):
    """Keeps all that it is asked, in order."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.asked: list[Asked] = []
        self.kept: Callable[[], frozenset[bytes]] = frozenset
        self._places = places

    def make_folder(self, path: Path) -> bool:
        self._note("folder", path)
        return super().make_folder(path)

    def write(self, path: Path, pieces: Iterable[Data]) -> int:
        data = b"".join(bytes(piece) for piece in pieces)
        self._note("write", path, data=data)
        return super().write(path, [data])

    def rename(self, old: Path, new: Path) -> None:
        self._note("rename", old, new)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        if path in self.files:
            self._note("remove", path)
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        self._note("sync", path)

    def _note(self, what: str, path: Path, other: Path | None = None, data: bytes = b"") -> None:
        with self.lock:
            self.asked.append(Asked(what, path, other, data, self.kept(), self._index()))

    def _index(self) -> Index:
        parts = [self._places.index, self._places.index.with_name("index.db-wal")]
        if not parts[0].exists():
            return None
        now = (parts[0].read_bytes(), parts[1].read_bytes() if parts[1].exists() else b"")
        before = self.asked[-1].index if self.asked else None
        return before if now == before else now


@dataclass(frozen=True)
class State:
    """What is on the disk when the power is back, and what must still be there."""

    files: frozenset[tuple[Path, bytes]]
    folders: frozenset[Path]
    index: Index
    kept: frozenset[bytes]


@dataclass
class _Disk:
    """Names that are durable, and changes of names that are not yet, in order."""

    files: dict[Path, bytes] = field(default_factory=dict)
    folders: set[Path] = field(default_factory=set)
    pending: list[Asked] = field(default_factory=list)

    def do(self, asked: Asked) -> None:
        if asked.what == "sync":
            now = [each for each in self.pending if each.path.parent == asked.path]
            for each in now:
                _apply(each, self.files, self.folders)
            self.pending = [each for each in self.pending if each.path.parent != asked.path]
        else:
            self.pending.append(asked)

    def after(self, changes: list[Asked], index: Index, kept: frozenset[bytes]) -> State:
        """The state with these changes, in their order."""
        files, folders = dict(self.files), set(self.folders)
        for asked in changes:
            _apply(asked, files, folders)
        there = frozenset((path, data) for path, data in files.items() if path.parent in folders)
        return State(there, frozenset(folders), index, kept)


def states_of(recorder: Recorder, draw: random.Random, share: float = 1.0) -> Iterator[State]:
    """The states behind every call, none twice; of them a random share."""
    disk, seen = _Disk(), set()
    indexes: list[Index] = [None]
    data: dict[Path, bytes] = {}
    for asked in (_with_data(each, data) for each in recorder.asked):
        if asked.index is not indexes[-1]:
            indexes.append(asked.index)
        for changes in _changes(disk, asked, draw):
            for index in _index_states(indexes):
                if draw.random() < share and (state := disk.after(changes, index, asked.kept)) not in seen:
                    seen.add(state)
                    yield state
        disk.do(asked)


def materialise(state: State, folder: Path) -> MemoryFiling:
    """The file system in that state; the index lies in `folder`."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    if state.index is not None:
        for path, data in zip(("index.db", "index.db-wal"), state.index, strict=True):
            if data:
                (folder / path).write_bytes(data)
    return MemoryFiling(dict(state.files), set(state.folders))


def judge(state: State, folder: Path) -> str:
    """What is wrong once a store is opened in that state; nothing where all is well."""
    store = open_store(folder, PLENTY, materialise(state, folder))
    try:
        counts = store.counts()
        if counts.state != "ready" or counts.quarantined:
            return f"opened {counts.state} ({counts.reason}) with {counts.quarantined} in quarantine"
        if store.verify().bad:
            return "a block that does not verify"
        for name in state.kept:
            loaded = _read(store, name)
            if not loaded:
                return f"lost what was acknowledged: {store.why(name)}"
        if any(path.suffix == ".tmp" for path in store._filing.files):  # type: ignore[attr-defined]
            return "an unfinished file is left"
        return "" if store.prune() == 0 else "something was left for pruning"
    finally:
        store.close(WAIT_S)


def record(folder: Path, rounds: int, seed: int = 0, limits: Limits | None = None) -> Recorder:
    """A busy store: blocks and tails of several chats, some read, some thrown away, all of it more than has room."""
    draw = random.Random(seed)
    recorder = Recorder(Places(folder))
    folder.mkdir(parents=True, exist_ok=True)
    store = open_store(folder, limits or Limits(size=(512 << 10) + 60_000, free_floor=0), recorder)
    recorder.kept = lambda: frozenset(entry.name for entry in store._shelf)
    lengths = [0] * 6
    for _ in range(rounds):
        chat = draw.randrange(len(lengths))
        lengths[chat] += draw.randrange(1, 30)
        chain = chain_of(range(1000 * chat, 1000 * chat + lengths[chat]))
        whole = len(chain.nodes) - 1
        names = [chain.name(place) for place in range(whole)]
        with store.holding(names):
            first = next((place for place, name in enumerate(names) if store.find(name) is None), whole)
            blocks = [offered_of(chain, place) for place in range(first, whole)]
            if rest := lengths[chat] % chain.block:
                blocks.append(offered_of(chain, whole, rest, grade=draw.randrange(2)))
            if draw.random() < 0.7:
                keep(store, blocks)
            else:
                for offered in blocks:
                    store.offer(offered)
        _tidy(store, draw, names)
    store.flush(WAIT_S)
    store.close(WAIT_S)
    return recorder


def _tidy(store: DiskStore, draw: random.Random, names: list[bytes]) -> None:
    what = draw.random()
    if what < 0.1 and names:
        store.discard([draw.choice(names)])
    elif what < 0.15:
        turns = iter([True] * 3)
        store.recompress(lambda: next(turns, False))
    elif what < 0.17:
        store.clear()
    elif what < 0.2:
        store.prune()


def _read(store: DiskStore, name: bytes) -> bool:
    """Whether a block is there as it was made; its tokens are those of its own file."""
    entry = store._shelf.get(name)
    loaded = store._load(entry) if entry else ""
    return not isinstance(loaded, str) and same(loaded[1], content_of(name))


def _changes(disk: _Disk, asked: Asked, draw: random.Random) -> Iterator[list[Asked]]:
    """Every choice of the unsynced changes, and of what the call that was under way may have done."""
    for chosen in _subsets(len(disk.pending), draw):
        pending = [disk.pending[number] for number in chosen]
        yield pending
        for last in _under_way(asked):
            yield [*pending, last]


def _under_way(asked: Asked) -> list[Asked]:
    if asked.what == "sync":
        return []
    if asked.what != "write":
        return [asked]
    data, half = asked.data, len(asked.data) // 2
    torn = (b"", data[:half], data[:half] + bytes(len(data) - half), data)
    return [Asked("write", asked.path, None, part, asked.kept, asked.index) for part in torn]


def _subsets(count: int, draw: random.Random) -> Iterator[tuple[int, ...]]:
    everything = tuple(range(count))
    if count <= ALL_SUBSETS:
        for size in range(count + 1):
            yield from itertools.combinations(everything, size)
        return
    yield ()
    yield everything
    for one in draw.sample(everything, 4):
        yield everything[:one]
        yield (one,)
        yield (*everything[:one], *everything[one + 1 :])
        yield tuple(number for number in everything if draw.random() < 0.5)


def _index_states(indexes: list[Index]) -> list[Index]:
    """The latest, the ones before, none, and the latest without the end of its log."""
    latest = indexes[-1]
    torn = (latest[0], latest[1][: len(latest[1]) // 2]) if latest else None
    return [*dict.fromkeys([latest, torn, *indexes[-3:-1], None])]


def _with_data(asked: Asked, data: dict[Path, bytes]) -> Asked:
    """A rename with the bytes of the file that it names."""
    if asked.what == "write":
        data[asked.path] = asked.data
    if asked.what != "rename" or asked.other is None:
        return asked
    data[asked.other] = data.pop(asked.path)
    return Asked("rename", asked.path, asked.other, data[asked.other], asked.kept, asked.index)


def _apply(asked: Asked, files: dict[Path, bytes], folders: set[Path]) -> None:
    if asked.what == "folder":
        folders.add(asked.path)
    elif asked.what == "write":
        files[asked.path] = asked.data
    elif asked.what == "remove":
        files.pop(asked.path, None)
    elif asked.what == "rename" and asked.other is not None:
        files.pop(asked.path, None)
        files[asked.other] = asked.data
