"""The Unix socket's guards: path, folder, locks, and what an earlier daemon left. Binding is the server's.

grpc removes whatever lies at the path when it binds, a live daemon's socket too, so the locks come first.
Lock files stay: removing one would let two daemons lock two different files of one name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import socket as sockets
import stat
from pathlib import Path

from mtplxd.errors import FailedPrecondition, InvalidArgument

PATH_LIMIT = 103
"""Bytes that every platform takes (macOS 103, Linux 107)."""
_DIAL_S = 1.0


def check_path(socket: Path) -> None:
    """Raises InvalidArgument unless the path is absolute, short enough and one that gRPC clients can name."""
    if not socket.is_absolute():
        raise InvalidArgument("socket path is not absolute", socket, "give a full path", field="socket")
    if "," in str(socket) or not str(socket).isprintable():
        raise InvalidArgument(
            "socket path has a comma or a control character",
            ascii(str(socket)),
            "choose another --socket or --home",
            field="socket",
        )
    length = len(os.fsencode(socket))
    if length > PATH_LIMIT:
        raise InvalidArgument(
            "socket path is too long",
            f"{length} bytes, the limit is {PATH_LIMIT}: {socket}",
            "choose a shorter --socket or --home",
            field="socket",
        )


def prepare_folder(folder: Path) -> None:
    """Makes the folder for the owner alone. Raises FailedPrecondition where others could reach into it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise FailedPrecondition(
            "cannot make the socket's folder", folder, error.strerror or "check the disk"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise FailedPrecondition("the socket's folder is a symlink or no folder", folder, "choose another")
    if found.st_uid != os.geteuid():
        raise FailedPrecondition("the socket's folder belongs to another user", folder, "choose another")
    if stat.S_IMODE(found.st_mode) & 0o077:
        shared = found.st_mode & stat.S_ISVTX  # such as /tmp: closing it would break the machine
        fix = "choose another" if shared else f"`chmod 700 {shlex.quote(str(folder))}`, or choose another"
        raise FailedPrecondition("the socket's folder is open to other users", folder, fix)


class Claim:
    """A lock file held for the life of a process; it names the holder's pid and socket."""

    def __init__(self, path: Path, socket: Path, what: str) -> None:
        """Raises FailedPrecondition naming the daemon that holds it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise FailedPrecondition(
                "cannot open a lock file", path, error.strerror or "check the disk"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 4096, 0).decode("utf-8", "replace").split("\n")
            os.close(self._descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise FailedPrecondition("cannot lock a file", path, error.strerror or "") from error
            raise _held(what, holder) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n{socket}\n".encode(), 0)
        except OSError as error:
            os.close(self._descriptor)
            raise FailedPrecondition("cannot write a lock file", path, error.strerror or "") from error

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


class SocketClaim:
    """The right to bind one socket of one home. Made before the port is added, released after it is gone."""

    def __init__(self, socket: Path, home: Path) -> None:
        """Raises InvalidArgument for the path, FailedPrecondition for folder, file or another daemon."""
        check_path(socket)
        prepare_folder(socket.parent)
        self._socket = socket
        self._bound: tuple[int, int] | None = None
        with contextlib.ExitStack() as undo:
            home_claim = Claim(home / ".daemon.lock", socket, f"this home ({home})")
            undo.callback(home_claim.release)
            socket_claim = Claim(socket.with_name(socket.name + ".lock"), socket, "this socket")
            undo.callback(socket_claim.release)
            remove_stale(socket)
            self._undo = undo.pop_all()

    def bound(self) -> None:
        """Remembers the socket that was bound, so that `release` removes no other."""
        self._bound = _identity(self._socket)

    def release(self) -> None:
        """Removes our socket and gives up both locks."""
        if self._bound is not None and _identity(self._socket) == self._bound:
            self._socket.unlink(missing_ok=True)
        self._undo.close()


def remove_stale(socket: Path) -> None:
    """Removes a socket nobody listens on. Raises FailedPrecondition for a live one and for other files."""
    try:
        found = socket.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FailedPrecondition("the socket's path is another file", socket, "remove it, or choose another")
    with sockets.socket(sockets.AF_UNIX) as dialling:
        dialling.settimeout(_DIAL_S)
        try:
            dialling.connect(str(socket))
        except (ConnectionRefusedError, FileNotFoundError):
            socket.unlink(missing_ok=True)
            return
        except OSError as error:
            raise _occupied(socket, f"{error.strerror or error}") from error
        raise _occupied(socket, _peer(dialling))


def _held(what: str, holder: list[str]) -> FailedPrecondition:
    pid, serves = [*holder, "", ""][:2]
    shown = f"pid {pid or 'unknown'}, socket {serves or 'unknown'}"
    return FailedPrecondition(
        f"another daemon holds {what}", shown, "use that one, or end it with `mtplx stop`"
    )


def _occupied(socket: Path, who: str) -> FailedPrecondition:
    return FailedPrecondition(
        "another process listens on this socket", f"{who}, socket {socket}", "end it, or choose another"
    )


def _peer(connection: sockets.socket) -> str:
    """The pid at the other end, where the system tells."""
    try:
        if hasattr(sockets, "SO_PEERCRED"):
            credentials = connection.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, 12)
            return f"pid {int.from_bytes(credentials[:4], 'little')}"
        local_peer_pid = connection.getsockopt(0, 2, 4)  # SOL_LOCAL, LOCAL_PEERPID of macOS
        return f"pid {int.from_bytes(local_peer_pid, 'little')}"
    except OSError:
        return "pid unknown"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
