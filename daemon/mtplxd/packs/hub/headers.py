"""A repository of the Hub as a folder to judge: configs, index and the headers of its weights, and no weight itself.

`read_pack(open_folder("org/name"), "org/name")` gives the pack that a pull of it would, so detector and tiers judge
both alike. What reads weights (fingerprints, values) has nothing to read here: `Pack.stamps` are empty.

    folder = open_folder("org/name@v2")     # or a HuggingFace of your own: endpoint, offline
    pack = read_pack(folder, "org/name@v2")
    folder.commit, folder.bytes_total, folder.bytes_read
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path

from mtplxd.errors import DataLoss, FailedPrecondition, NotFound
from mtplxd.packs.contents import INDEX, SIDECARS
from mtplxd.packs.headers import MAX_HEADER
from mtplxd.packs.hub.names import parse_repository
from mtplxd.packs.hub.repository import LOOK_UP_S, RemoteFile, Repository, open_repository
from mtplxd.paths import HuggingFace, resolve_hugging_face

BUDGET = 20_000_000
"""Bytes that may come over the wire for one repository."""

_FIRST = 16 * 1024
"""Bytes of a weights file that are asked for at once; most headers end within them."""

_AT_ONCE = 8

_LARGE_INDEX = 6_000_000
"""Bytes beyond which an index is left alone: the headers of its files say the same, and must be read anyway."""

_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")


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
    def files(self) -> Mapping[str, RemoteFile]:
        """All files of the repository by name."""
        return self._repository.files

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
        names = {name.removeprefix(self._inside) for name in files if name.startswith(self._inside)}
        return names if self._has_index() else _without_strays(names)

    def has(self, name: str) -> bool:
        return self._inside + name in self._repository.files and (name != INDEX or self._has_index())

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

    def _has_index(self) -> bool:
        """Whether there is an index worth reading."""
        index = self._repository.files.get(self._inside + INDEX)
        return index is not None and index.size <= _LARGE_INDEX

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


def _without_strays(names: set[str]) -> set[str]:
    """Without an index the weights are those numbered as parts of one whole, where there are such."""
    shards = {name for name in names if _SHARD.fullmatch(name)}
    strays = {name for name in names if name.startswith("model") and name.endswith(".safetensors")}
    return names - (strays - shards - {*SIDECARS} if shards else set())


class _Reading:
    """What has been read of a repository: headers of its weights files, and how much came over the wire in all."""

    def __init__(self, repository: Repository, budget: int) -> None:
        self._repository, self._left = repository, budget
        self._begun: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self.received = 0

    def begin_all(self, files: Iterable[str]) -> None:
        """Reads the headers of files, several at once, where that was not done yet."""
        wanted = [file for file in files if file not in self._begun]
        if len(wanted) < 2:
            return
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headers") as pool:
            for file, content in zip(wanted, pool.map(self._begin, wanted), strict=True):
                self._begun[file] = content

    def range(self, file: str, begin: int, length: int) -> bytes:
        """Bytes of a file from `begin` on, from those that are here as far as they go."""
        first = self._begun.get(file)
        if first is None:
            first = self._begun[file] = self._begin(file)
        end = min(begin + length, self._repository.files[file].size)
        known = first[begin:end]
        return known + self._fetch(file, begin + len(known), end)

    def whole(self, file: str) -> bytes:
        """All bytes of a small file."""
        size = self._repository.files[file].size
        self._reserve(file, size)
        content, received = self._repository.read(file, size)
        self._count(received, size - received)  # less than its size where it came compressed
        return content

    def _begin(self, file: str) -> bytes:
        """The file's first bytes, with the whole header where its length is one that a header can have."""
        size = self._repository.files[file].size
        first = self._fetch(file, 0, min(_FIRST, size))
        end = 8 + int.from_bytes(first[:8], "little")
        return first + self._fetch(file, len(first), end if end <= min(size, MAX_HEADER) else 0)

    def _fetch(self, file: str, begin: int, end: int) -> bytes:
        if end <= begin:
            return b""
        content = bytearray()
        self._reserve(file, end - begin)
        with self._repository.stream(file, begin, end, LOOK_UP_S) as pieces:
            for piece in pieces:
                content += piece
                if len(content) >= end - begin:
                    break
        self._count(len(content))
        return bytes(content[: end - begin])

    def _reserve(self, file: str, length: int) -> None:
        with self._lock:
            if length > self._left:
                name = self._repository.name
                raise FailedPrecondition(
                    "its headers are too large to judge it from afar",
                    f"{file} of {name}",
                    f"`mtplx pull {name}`, then inspect it here",
                )
            self._left -= length

    def _count(self, received: int, spared: int = 0) -> None:
        with self._lock:
            self.received += received
            self._left += spared
