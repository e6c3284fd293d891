"""Who is at the other end of a connection, as the kernel tells it."""

from __future__ import annotations

import socket
import struct
import sys

_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1
_XUCRED = struct.Struct("=IIh2x16I")
_XUCRED_VERSION = 0
_UCRED = struct.Struct("=3i")


def peer_uid(connection: socket.socket) -> int:
    """The effective user of the peer when it connected. Raises OSError."""
    if sys.platform == "darwin":
        return read_xucred(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))
    return read_ucred(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))


def read_xucred(data: bytes) -> int:
    """The user in what macOS gives. Raises OSError where it is something else."""
    if len(data) < _XUCRED.size or _XUCRED.unpack_from(data)[0] != _XUCRED_VERSION:
        raise OSError("the peer's credentials cannot be read")
    uid: int = _XUCRED.unpack_from(data)[1]
    return uid


def read_ucred(data: bytes) -> int:
    """The user in what Linux gives."""
    if len(data) != _UCRED.size:
        raise OSError("the peer's credentials cannot be read")
    uid: int = _UCRED.unpack(data)[1]
    return uid
