"""How small files are written and locked so that a crash leaves the old content or the new, never half of it.

It knows nothing of what the files mean. Durable means F_FULLFSYNC where the system has it, fsync elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mtplxd.errors import Cancelled

LOCK_POLL_S = 0.05
_NO_FULL_SYNC = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY}  # not every file system has it


def sync_open(descriptor: int) -> None:
    """Returns when the bytes of an open file, or the names in an open folder, are on the disk."""
    if full := getattr(fcntl, "F_FULLFSYNC", None):
        try:
            fcntl.fcntl(descriptor, full)
            return
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
    os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Returns when the file's bytes are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_open(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Returns when the folder's entries (names made, renamed, removed) are on the disk."""
    sync_file(path)


def sync_tree(root: Path) -> None:
    """Syncs every file below a folder, then the folders from the inside out."""
    for folder, _folders, names in os.walk(root, topdown=False):
        for name in names:
            sync_file(Path(folder, name))
        sync_folder(Path(folder))


def is_full(error: OSError) -> bool:
    """Whether it is room that is missing: on the disk, or within the user's quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_atomically(path: Path, data: bytes, mode: int = 0o600, *, through_link: bool = True) -> None:
    """Replaces the file, or where it is a symbolic link what that leads to; without `through_link` the link itself.

    Raises OSError and leaves the old file.
    """
    target = Path(os.path.realpath(path)) if through_link else path
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            sync_open(file.fileno())
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


@contextlib.contextmanager
def locked(path: Path, cancelled: Callable[[], bool] = lambda: False) -> Iterator[int]:
    """Holds an exclusive lock on a lock file, which stays; waits its turn. Raises Cancelled while waiting.

    The system drops the lock when its holder dies, and any child that was handed the yielded descriptor; so a
    killed process never blocks the next one, and its orphans never work beside it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _try_lock(descriptor):
            if cancelled():
                raise Cancelled("stopped waiting for another process", path.name)
            time.sleep(LOCK_POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
