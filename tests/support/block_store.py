"""Blocks, clocks and file systems for tests of the store on disk."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mtplxd.store.blocks import BlockBytes, Data, Offered, Tensor
from mtplxd.store.disk import DiskStore
from mtplxd.store.filing import Filing, Listed, RealFiling, Scratch
from mtplxd.store.keys import Chain, identify
from mtplxd.store.limits import Limits

FACTS = {"body": "a", "head": "b", "dtype": "c", "backend": "d", "partition": "e"}
PLENTY = Limits(free_floor=0)
WAIT_S = 60.0
_HIGH = bytes(0x3E + octet % 3 for octet in range(256))


def chain_of(tokens: Sequence[int], block: int = 8, **facts: str) -> Chain:
    """The blocks of a sequence of tokens."""
    return Chain(identify({**FACTS, **facts}), tokens, block)


def content_of(name: bytes, nbytes: int = 512) -> BlockBytes:
    """What a test keeps of a block, another for each name: a float that packs, noise that does not, a state."""
    draw = random.Random(name)
    half = nbytes // 2 // 8 * 8
    numbers = bytearray(draw.randbytes(half))
    numbers[1::2] = numbers[1::2].translate(_HIGH)
    tensors = (
        Tensor("keys", "bfloat16", (1, half // 8, 4), bytes(numbers)),
        Tensor("values", "uint8", (half,), draw.randbytes(half)),
        Tensor("state", "float32", (2,), draw.randbytes(8)),
    )
    return BlockBytes({"first": draw.randrange(100), "layers": ["a", {"b": None}]}, tensors)


def offered_of(
    chain: Chain, place: int, length: int | None = None, *, grade: int = 0, nbytes: int = 512
) -> Offered:
    """A block of a chain, or a tail behind it, as it is offered."""
    name = chain.name(place, length)
    return Offered(
        name, chain.identity, chain.nodes[place], chain.span(place, length), content_of(name, nbytes),
        tail=length is not None, grade=grade,
    )  # fmt: skip


def same(one: BlockBytes | None, other: BlockBytes) -> bool:
    """Whether a block was read back as it was offered, to the bit."""
    return (
        one is not None
        and one.meta == other.meta
        and [(each.name, each.dtype, each.shape, bytes(each.data)) for each in one.tensors]
        == [(each.name, each.dtype, each.shape, bytes(each.data)) for each in other.tensors]
    )


def keep(store: DiskStore, blocks: Iterable[Offered]) -> None:
    """Offers blocks and waits until they are on the disk."""
    for offered in blocks:
        assert store.offer(offered)
    assert store.flush(WAIT_S)


def whole(store: DiskStore, chain: Chain) -> int:
    """How many blocks of a chain, from the first on, are read back as they were offered; no other is found."""
    count = 0
    for place in range(len(chain.nodes) - 1):
        name = chain.name(place)
        content = store.read(name, chain.span(place))
        if content is None:
            break
        assert same(content, content_of(name, content.nbytes - 8))
        count += 1
    return count


@dataclass
class Clock:
    """A clock that goes when it is told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class FaultyFiling(RealFiling):
    """The file system with faults: `fail(operation, path)` gives what is raised instead. `free_bytes` replaces what the
    volume says."""

    def __init__(self) -> None:
        self.fail: Callable[[str, Path], OSError | None] = lambda _operation, _path: None
        self.free_bytes: int | None = None
        self.asked_free: list[Path] = []

    def make_folder(self, path: Path) -> bool:
        self._try("make_folder", path)
        return super().make_folder(path)

    def write(self, path: Path, pieces: Iterable[Data]) -> int:
        self._try("create", path)

        def checked() -> Iterable[Data]:
            for piece in pieces:
                yield piece
                self._try("write", path)

        size = super().write(path, checked())
        self._try("sync", path)
        return size

    def read(self, path: Path, limit: int | None = None) -> bytes:
        self._try("read", path)
        return super().read(path, limit)

    def read_over(self, path: Path, scratch: Scratch) -> memoryview:
        self._try("read", path)
        return super().read_over(path, scratch)

    def rename(self, old: Path, new: Path) -> None:
        self._try("rename", new)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._try("remove", path)
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        self._try("sync_folder", path)
        super().sync_folder(path)

    def listing(self, path: Path) -> list[Listed]:
        self._try("listing", path)
        return super().listing(path)

    def free(self, path: Path) -> int:
        self.asked_free.append(path)
        return super().free(path) if self.free_bytes is None else self.free_bytes

    def _try(self, operation: str, path: Path) -> None:
        if (error := self.fail(operation, path)) is not None:
            raise error


def failing(number: int, *operations: str) -> Callable[[str, Path], OSError | None]:
    """A `fail` that lets these operations fail with an errno."""
    return lambda operation, _path: OSError(number, "broken") if operation in operations else None


READ_ONLY = failing(errno.EROFS, "make_folder", "create", "write", "sync", "rename", "remove", "sync_folder")


@dataclass
class MemoryFiling:
    """A file system in memory, as a power cut may have left one."""

    files: dict[Path, bytes] = field(default_factory=dict)
    folders: set[Path] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def make_folder(self, path: Path) -> bool:
        with self.lock:
            new = path not in self.folders
            self.folders.add(path)
        return new

    def write(self, path: Path, pieces: Iterable[Data]) -> int:
        data = b"".join(bytes(piece) for piece in pieces)
        with self.lock:
            if path in self.files:
                raise FileExistsError(errno.EEXIST, "exists", str(path))
            self._need(path.parent)
            self.files[path] = data
        return len(data)

    def read(self, path: Path, limit: int | None = None) -> bytes:
        with self.lock:
            if path not in self.files:
                raise FileNotFoundError(errno.ENOENT, "gone", str(path))
            return self.files[path][:limit]

    def read_over(self, path: Path, scratch: Scratch) -> memoryview:
        data = self.read(path)
        room = scratch.of(len(data))
        room[:] = data
        return room

    def rename(self, old: Path, new: Path) -> None:
        with self.lock:
            self._need(new.parent)
            if old not in self.files:
                raise FileNotFoundError(errno.ENOENT, "gone", str(old))
            self.files[new] = self.files.pop(old)

    def remove(self, path: Path) -> None:
        with self.lock:
            self.files.pop(path, None)

    def sync_folder(self, path: Path) -> None:
        del path

    def listing(self, path: Path) -> list[Listed]:
        with self.lock:
            files = [
                Listed(each.name, len(data), False)
                for each, data in self.files.items()
                if each.parent == path
            ]
            return files + [Listed(each.name, 0, True) for each in self.folders if each.parent == path]

    def free(self, path: Path) -> int:
        del path
        return 1 << 50

    def _need(self, folder: Path) -> None:
        if folder not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "gone", str(folder))


def open_store(
    folder: Path, limits: Limits = PLENTY, filing: Filing | None = None, **extra: object
) -> DiskStore:
    """A store that has looked at its folder."""
    store = DiskStore(folder, limits, filing=filing, **extra)  # type: ignore[arg-type]
    store.flush(WAIT_S)
    return store
