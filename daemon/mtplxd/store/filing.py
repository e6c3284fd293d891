"""Every touch of a file or folder of blocks, so that a test can record it, let it fail, and cut the power behind it.

One class per way of doing it; what files mean, and in which order they are touched, is decided elsewhere. The index and
the sessions are SQLite's own files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol

from mtplxd.files import sync_folder, sync_open
from mtplxd.store.blocks import Data

FILE_MODE, FOLDER_MODE = 0o600, 0o700
SCRATCH = 32 << 20
"""Bytes that a thread keeps for what it reads at most."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A name in a folder. `nbytes` is its size, 0 for a folder; what is neither file nor folder has `other`."""

    name: str
    nbytes: int
    folder: bool
    other: bool = False


class Scratch(threading.local):
    """Memory that each thread reads files into, one over the other: fresh memory for each takes as long as reading."""

    def __init__(self) -> None:
        self._room = bytearray()

    def of(self, nbytes: int) -> memoryview:
        """So many bytes of it, whatever they are; good until the thread asks again."""
        if len(self._room) < nbytes:
            if nbytes > SCRATCH:
                return memoryview(bytearray(nbytes))
            self._room = bytearray(nbytes)
        return memoryview(self._room)[:nbytes]


class Filing(Protocol):
    """What the store asks of a file system. All of it raises OSError as the system does."""

    def make_folder(self, path: Path) -> bool:
        """Makes a folder only its owner can enter; False where it is there. Durable once the one above is synced."""

    def write(self, path: Path, pieces: Iterable[Data]) -> int:
        """Makes a file only its owner can read, which must not be there; returns its bytes once they are durable. Its
        name is durable once its folder is synced."""

    def read(self, path: Path, limit: int | None = None) -> bytes:
        """The bytes of a file, at most the first `limit`."""

    def read_over(self, path: Path, scratch: Scratch) -> memoryview:
        """The bytes of a file, written over what the thread read there before."""

    def rename(self, old: Path, new: Path) -> None:
        """Gives a file another name, in place of what has that name."""

    def remove(self, path: Path) -> None:
        """Removes a file; that it is gone already is fine."""

    def sync_folder(self, path: Path) -> None:
        """Returns once the names in a folder are durable."""

    def listing(self, path: Path) -> list[Listed]:
        """What is in a folder, in no order; nothing where there is no folder."""

    def free(self, path: Path) -> int:
        """Bytes that may still be written to the volume a folder is on."""


class RealFiling:
    """The file system itself. Links are never followed: whatever is at a name of ours is ours."""

    def make_folder(self, path: Path) -> bool:
        try:
            os.mkdir(path, FOLDER_MODE)
        except FileExistsError:
            return False
        return True

    def write(self, path: Path, pieces: Iterable[Data]) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor, written = os.open(path, flags, FILE_MODE), 0
        try:
            for piece in pieces:
                rest = memoryview(piece).cast("B")
                while rest:
                    done = os.write(descriptor, rest)
                    rest, written = rest[done:], written + done
            sync_open(descriptor)
        finally:
            os.close(descriptor)
        return written

    def read(self, path: Path, limit: int | None = None) -> bytes:
        with _open(path) as file:
            data = file.read() if limit is None else file.read(limit)
        return data or b""

    def read_over(self, path: Path, scratch: Scratch) -> memoryview:
        with _open(path) as file:
            room, done = scratch.of(os.fstat(file.fileno()).st_size), 0
            while count := file.readinto(room[done:]):
                done += count
        return room[:done]

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def sync_folder(self, path: Path) -> None:
        sync_folder(path)

    def listing(self, path: Path) -> list[Listed]:
        try:
            with os.scandir(path) as entries:
                return [listed for entry in entries for listed in _look(entry)]
        except FileNotFoundError:
            return []

    def free(self, path: Path) -> int:
        volume = os.statvfs(path)
        return volume.f_bavail * volume.f_frsize


@contextlib.contextmanager
def only_holder(path: Path) -> Iterator[None]:
    """Holds a lock file, which stays, so that no two stores write one folder; the system lets go of it when the process
    ends. Raises BlockingIOError where another has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> FileIO:
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0)


def _look(entry: os.DirEntry[str]) -> Iterator[Listed]:
    with contextlib.suppress(FileNotFoundError):  # gone since
        if entry.is_dir(follow_symlinks=False):
            yield Listed(entry.name, 0, folder=True)
        elif entry.is_file(follow_symlinks=False):
            yield Listed(entry.name, entry.stat(follow_symlinks=False).st_size, folder=False)
        else:
            yield Listed(entry.name, 0, folder=False, other=True)
