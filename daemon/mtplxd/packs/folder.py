"""Where a pack's files are read from: their names, small files whole, ranges of large ones. This is a folder on disk.

A folder elsewhere has the same methods; what its files mean is `contents`' and `pack`'s.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from mtplxd.errors import DataLoss, NotFound

MAX_SMALL = 64 * 1024 * 1024
"""Bytes of the largest config or index that is read; the largest published index has 9 MB."""


class Folder(Protocol):
    """One pack's files. Names are relative, with `/`. `path` is what stands before them in messages and records."""

    @property
    def path(self) -> Path: ...

    def names(self) -> set[str]:
        """Its files: all of them, or those of the folder itself where looking below costs."""

    def has(self, name: str) -> bool:
        """Whether there is such a file, in folders below too."""

    def size(self, name: str) -> int:
        """Bytes of a file. Raises NotFound without one."""

    def read(self, name: str) -> bytes:
        """A small file whole. Raises DataLoss where it cannot be read or is no small one."""

    def read_range(self, name: str, begin: int, length: int) -> bytes:
        """Bytes from `begin` on, fewer at the file's end. Raises NotFound without one, DataLoss."""

    def stamp(self, name: str) -> tuple[int, ...]:
        """What changes when a file is written or replaced; empty where nothing tells. Raises NotFound."""

    def below(self, name: str) -> Folder:
        """A folder in it."""


class LocalFolder:
    """A folder on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        return self._path

    def names(self) -> set[str]:
        return {file.name for file in self._path.iterdir() if file.is_file()}

    def has(self, name: str) -> bool:
        return os.path.isfile(self._path / name)  # false for a path no system could have

    def size(self, name: str) -> int:
        return self.stamp(name)[0]

    def read(self, name: str) -> bytes:
        path = self._path / name
        try:
            with path.open("rb") as file:
                content = file.read(MAX_SMALL + 1)
        except OSError as error:
            raise DataLoss("cannot read a file", path, error.strerror or "check the disk") from error
        if len(content) > MAX_SMALL:
            raise DataLoss("no config or index is that large", path, "pull or build the pack again")
        return content

    def read_range(self, name: str, begin: int, length: int) -> bytes:
        path = self._path / name
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(begin)
                return file.read(length)
        except FileNotFoundError:
            raise NotFound("no such file", path, "check the path") from None
        except OSError as error:
            raise DataLoss("cannot read a weights file", path, error.strerror or "check the disk") from error

    def stamp(self, name: str) -> tuple[int, ...]:
        try:
            return file_stamp(self._path / name)
        except OSError:
            raise NotFound("no such file", self._path / name, "check the path") from None

    def below(self, name: str) -> LocalFolder:
        return LocalFolder(self._path / name)


def file_stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced. Raises OSError without one."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
