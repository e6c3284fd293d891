"""One file of a repository onto the disk: it goes on where an earlier try stopped, and ends whole or not at all.

What has arrived lies in `ETAG.part`; a whole file is renamed to `ETAG` once its hash is right and its bytes are on the
disk. So the folder of arrivals never holds a file that is not what its name says, whatever kills the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from io import RawIOBase
from pathlib import Path

from mtplxd.errors import DataLoss, Unavailable
from mtplxd.files import sync_file
from mtplxd.packs.hub.errors import NoRange
from mtplxd.packs.hub.repository import RemoteFile, Repository, new_hash

OnBytes = Callable[[int], None]
"""Takes how many bytes more have arrived; fewer than none where some were of no use."""

PIECE = 256 * 1024 * 1024
"""Bytes asked for at once: the Hub's storage refuses plain requests for files beyond 50 GB."""
TRIES = 5
"""How often in a row a connection may bring nothing before the pull gives up."""
WAIT_S = 1.0
_CHUNK = 4 * 1024 * 1024


def transfer(
    repository: Repository, file: RemoteFile, folder: Path, on_bytes: OnBytes, timeout_s: float
) -> Path:
    """The file's place in the folder of arrivals, fetched as far as it is not there yet.

    Bytes that turn out wrong are fetched once more from the start. Raises DataLoss when they are wrong again,
    Unavailable when nothing arrives any more, OSError.
    """
    whole, part = folder / file.etag, folder / f"{file.etag}.part"
    if whole.is_file():
        on_bytes(file.size)
        return whole
    on_bytes(arrived(file, folder))
    for _ in range(2):
        _fill(repository, file, part, on_bytes, timeout_s)
        if hash_of(part, file.etag) == file.etag:
            sync_file(part)
            return part.replace(whole)
        on_bytes(-file.size)
        part.unlink()
    what = "the Hub sent other bytes than it lists (wrong hash)"
    raise DataLoss(what, f"{file.name} of {repository.name}", "try again later, or tell its publisher")


def arrived(file: RemoteFile, folder: Path) -> int:
    """Bytes of a file that need not be fetched any more; too many are none."""
    whole, part = folder / file.etag, folder / f"{file.etag}.part"
    if whole.is_file():
        return file.size
    size = part.stat().st_size if part.is_file() else 0
    return size if size <= file.size else 0


def hash_of(path: Path, etag: str, on_bytes: OnBytes = lambda _: None) -> str:
    """A file's hash of the kind that `etag` is: sha256, or git's name for a file. Raises OSError."""
    digest = new_hash(etag, path.stat().st_size)
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            on_bytes(len(chunk))
    return str(digest.hexdigest())


def _fill(repository: Repository, file: RemoteFile, part: Path, on_bytes: OnBytes, timeout_s: float) -> None:
    """Appends to `part` until it has the file's size."""
    if not part.is_file() or part.stat().st_size > file.size:
        part.write_bytes(b"")
    failures = 0
    while (begin := part.stat().st_size) < file.size:
        try:
            _append(repository, file, part, begin, on_bytes, timeout_s)
        except NoRange:
            on_bytes(-begin)
            part.write_bytes(b"")
        except Unavailable:
            failures = 0 if part.stat().st_size > begin else failures + 1
            if failures > TRIES:
                raise
            time.sleep(WAIT_S)


def _append(
    repository: Repository, file: RemoteFile, part: Path, begin: int, on_bytes: OnBytes, timeout_s: float
) -> None:
    end, at = min(begin + PIECE, file.size), begin
    with ExitStack() as stack:
        out = stack.enter_context(part.open("ab", buffering=0))
        for chunk in stack.enter_context(repository.stream(file.name, begin, end, timeout_s)):
            wanted = chunk[: file.size - at]
            _write(out, wanted)
            at += len(wanted)
            on_bytes(len(wanted))
            if at == file.size:
                return
    if at < end:
        raise Unavailable("the connection ended early", f"{file.name} of {repository.name}", "try again")


def _write(out: RawIOBase, data: bytes) -> None:
    """All of it: a disk that fills up takes a part first, and says why not the rest."""
    left = memoryview(data)
    while left:
        left = left[out.write(left) or 0 :]
