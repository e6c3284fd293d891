"""A repository of the Hub as a folder to judge: configs, index and the headers of its weights, and no weight itself.

`read_pack(open_folder("org/name"), "org/name")` gives the pack that a pull of it would, so detector and tiers judge
both alike. What reads weights (fingerprints, values) has nothing to read here: `Pack.stamps` are empty.

    folder = open_folder("org/name@v2")     # or a HuggingFace of your own: endpoint, offline
    pack = read_pack(folder, "org/name@v2")
    folder.commit, folder.bytes_total, folder.bytes_read
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path

from mtplxd.errors import DataLoss, FailedPrecondition, NotFound
from mtplxd.packs.hub import LOOK_UP_S, RemoteFile, Repository, open_repository
from mtplxd.packs.hub_names import parse_repository
from mtplxd.paths import HuggingFace, resolve_hugging_face

BUDGET = 20_000_000
"""Bytes that may come over the wire for one repository."""

_FIRST = 16 * 1024
"""Bytes of a weights file that are asked for at once; most headers end within them."""

_AT_ONCE = 8


def open_folder(name: str, hugging_face: HuggingFace | None = None, budget: int = BUDGET) -> HubFolder:
    """The repository `org/name` or `org/name@revision`, looked up now and pinned to its commit.

    Raises InvalidArgument for another name, NotFound, FailedPrecondition (gated), Unavailable.
    """
    found = open_repository(parse_repository(name), hugging_face or resolve_hugging_face())
    return HubFolder(found, budget)


class HubFolder:
    """A `Folder` of a repository. Errors of its methods are those of `Folder`, and the Hub's.

    A read that would go beyond the budget raises FailedPrecondition.
    """

    def __init__(self, repository: Repository, budget: int) -> None:
        self._repository, self._inside = repository, ""
        self._reading = _Reading(repository, budget)

    @property
    def path(self) -> Path:
        """No folder of this machine: it names the files in messages and records."""
        return Path(f"hf:{self._repository.name}", self._inside)

    @property
    def commit(self) -> str:
        """What the revision stood for when the repository was looked up, 40 hexadecimal digits."""
        return self._repository.commit

    @property
    def bytes_total(self) -> int:
        """Bytes of all files of the repository."""
        return sum(file.size for file in self._repository.files.values())

    @property
    def bytes_read(self) -> int:
        """Bytes that have come over the wire so far, the look-up's not counted."""
        return self._reading.received

    def names(self) -> set[str]:
        files = self._repository.files
        return {name.removeprefix(self._inside) for name in files if name.startswith(self._inside)}

    def has(self, name: str) -> bool:
        return self._inside + name in self._repository.files

    def size(self, name: str) -> int:
        return self._file(name).size

    def read(self, name: str) -> bytes:
        if not self.has(name):
            raise DataLoss("cannot read a file", self.path / name, "it is not in the repository")
        return self._reading.whole(self._inside + name)

    def read_range(self, name: str, begin: int, length: int) -> bytes:
        self._file(name)
        if begin < _FIRST:
            self._reading.begin_all(self._beside())
        return self._reading.range(self._inside + name, begin, length)

    def stamp(self, name: str) -> tuple[int, ...]:
        self._file(name)
        return ()

    def below(self, name: str) -> HubFolder:
        inner = copy(self)
        inner._inside = f"{self._inside}{name}/"
        return inner

    def _file(self, name: str) -> RemoteFile:
        if not self.has(name):
            raise NotFound("no such file", self.path / name, "it is not in the repository")
        return self._repository.files[self._inside + name]

    def _beside(self) -> list[str]:
        """The weights files of this folder, whose headers are wanted one after the other."""
        return [
            self._inside + name
            for name in sorted(self.names())
            if name.endswith(".safetensors") and "/" not in name
        ]


class _Reading:
    """What has been read of a repository: first bytes of its weights files, and how much that was in all."""

    def __init__(self, repository: Repository, budget: int) -> None:
        self._repository, self._left = repository, budget
        self._begun: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self.received = 0

    def begin_all(self, files: Iterable[str]) -> None:
        """Reads the first bytes of files, several at once, where that was not done yet."""
        wanted = [file for file in files if file not in self._begun]
        if len(wanted) < 2:
            return
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headers") as pool:
            for file, content in zip(wanted, pool.map(self._first, wanted), strict=True):
                self._begun[file] = content

    def range(self, file: str, begin: int, length: int) -> bytes:
        """Bytes of a file from `begin` on, from those that are here as far as they go."""
        first = self._begun.get(file)
        if first is None:
            first = self._begun[file] = self._first(file)
        end = min(begin + length, self._repository.files[file].size)
        if end <= len(first):
            return first[begin:end]
        known = first[begin:]
        return known + self._fetch(file, begin + len(known), end)

    def whole(self, file: str) -> bytes:
        """All bytes of a small file."""
        limit = self._allow(file, 0)
        content, received = self._repository.read(file, limit)
        self._count(received)
        return content

    def _first(self, file: str) -> bytes:
        return self._fetch(file, 0, min(_FIRST, self._repository.files[file].size))

    def _fetch(self, file: str, begin: int, end: int) -> bytes:
        if end <= begin:
            return b""
        self._allow(file, end - begin)
        content = bytearray()
        with self._repository.stream(file, begin, end, LOOK_UP_S) as pieces:
            for piece in pieces:
                content += piece
                if len(content) >= end - begin:
                    break
        self._count(len(content))
        return bytes(content[: end - begin])

    def _allow(self, file: str, length: int) -> int:
        with self._lock:
            if length > self._left:
                name = self._repository.name
                raise FailedPrecondition(
                    "its headers are too large to judge it from afar",
                    f"{file} of {name}",
                    f"`mtplx pull {name}`, then inspect it here",
                )
            return self._left

    def _count(self, received: int) -> None:
        with self._lock:
            self._left -= received
            self.received += received
