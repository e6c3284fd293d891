"""The look at the socket and its folder before connecting: who owns them, who may enter, that nothing is a
symlink, and whether somebody listens.

Owns these looks only; where the socket is comes from the caller. The folder is what guards the daemon (no peer
ids are known over gRPC), so a client must not send prompts into somebody else's.
"""

from __future__ import annotations

import os
import shlex
import socket as sockets
import stat
from pathlib import Path

from mtplx_client.errors import FailedPrecondition, InvalidArgument, NoDaemon

PATH_LIMIT = 103
"""Bytes of a Unix socket's path that every platform takes."""


def check_socket(socket: Path) -> None:
    """Raise unless `socket` is this user's own socket in an owner-only folder.

    NoDaemon when folder or socket are absent, FailedPrecondition for a wrong owner, mode or symlink.
    """
    check_folder(socket)
    try:
        end = os.lstat(socket)
    except FileNotFoundError:
        raise NoDaemon(socket) from None
    if not stat.S_ISSOCK(end.st_mode):
        raise _refuse("the socket is a symlink or no socket", socket)
    if end.st_uid != os.geteuid():
        raise _refuse("the socket belongs to another user", socket)


def check_folder(socket: Path) -> None:
    """The same for the folder of `socket` alone; the socket may be absent."""
    folder = socket.parent
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        raise NoDaemon(socket) from None
    if not stat.S_ISDIR(found.st_mode):
        raise _refuse("the socket's folder is a symlink or no folder", folder)
    if found.st_uid != os.geteuid():
        raise _refuse("the socket's folder belongs to another user", folder)
    if stat.S_IMODE(found.st_mode) & 0o077:
        shared = found.st_mode & stat.S_ISVTX  # such as /tmp: closing it would break the machine
        fix = "choose another" if shared else f"close it with `chmod 700 {shlex.quote(str(folder))}`"
        raise FailedPrecondition("the socket's folder is open to other users", folder, fix)


def is_listening(socket: Path) -> bool:
    """Whether a process takes connections at `socket`, though it may not answer them."""
    with sockets.socket(sockets.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(socket))
        except BlockingIOError:  # too many wait for it already
            return True
        except OSError:
            return False
    return True


def check_path(socket: Path) -> None:
    """Raise InvalidArgument unless `socket` is absolute and short enough for every platform."""
    if not socket.is_absolute():
        raise InvalidArgument("the socket's path is not absolute", socket, "give a full path", field="socket")
    length = len(os.fsencode(socket))
    if length > PATH_LIMIT:
        raise InvalidArgument(
            "the socket's path is too long",
            f"{length} bytes",
            f"choose one of at most {PATH_LIMIT} bytes with --socket or a shorter --home",
            field="socket",
        )


def _refuse(what: str, path: Path) -> FailedPrecondition:
    return FailedPrecondition(what, path, "point --socket at your own daemon")
