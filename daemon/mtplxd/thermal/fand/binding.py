"""The helper's folder, lock and socket: made for root and one user, never taken from a helper that lives."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from pathlib import Path

DEFAULT_SOCKET = "/var/run/mtplxd-fand/fand.sock"


class CannotServe(Exception):
    """Why the helper cannot start, in one line."""


def make_folder(folder: Path) -> None:
    """The folder of the socket, which only we may write to. Raises CannotServe."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise CannotServe(f"cannot make a folder ({folder}): {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise CannotServe(f"this folder is not ours alone ({folder}): remove it")


def claim(folder: Path) -> int:
    """The lock of the one helper that may run; the descriptor holds it. Raises CannotServe."""
    descriptor = os.open(folder / "fand.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise CannotServe(f"another helper runs ({folder})") from None
    return descriptor


def listen(path: Path, owner: int) -> socket.socket:
    """A socket that `owner` and root can open. The caller holds the lock, so what is there is a dead one's."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise CannotServe(f"cannot bind the socket ({path}): {error.strerror or error}") from None
    finally:
        os.umask(before)
    if owner != os.geteuid():
        os.chown(path, owner, -1)
    listener.listen(64)
    return listener
