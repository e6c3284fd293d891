"""What both clients need to reach the daemon: where it is, channel options, and when a lost call may be
repeated.

Owns the policy, not the channel: opening, waiting and calling differ between blocking and asynchronous code.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
from mtplxd.config import resolve_settings
from mtplxd.paths import absolute, resolve_home

from mtplx_client import handshake
from mtplx_client.calls import QUICK_S, Call
from mtplx_client.errors import Internal, MtplxError, NoDaemon, Unavailable
from mtplx_client.folder import check_folder, check_path, check_socket
from mtplx_client.rpc_errors import error_from, is_lost_connection

CONNECT_MS = 5000
"""What one attempt to connect may take, the daemon's first frames included: a busy machine needs its time.

gRPC reads it from the option named after the shortest backoff, which it no longer is.
"""
OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", 250),
)
POLL_S = 0.05
"""Pause between two looks for a daemon that is not there yet."""


def resolve_socket(socket: str | os.PathLike[str] | None, home: str | os.PathLike[str] | None) -> Path:
    """The daemon's socket: the given one, else MTPLXD_SOCKET, config.toml, or the home's own."""
    if socket is not None:
        return absolute(os.fspath(socket))
    return resolve_settings(resolve_home(None if home is None else os.fspath(home))).socket


@dataclass
class Peer:
    """The daemon as one client knows it. `met` becomes true with its first answer."""

    socket: Path
    timeout_s: float | None = None
    reconnect_s: float = 5.0
    client_id: str = field(default_factory=lambda: f"{os.getpid()}-{secrets.token_hex(4)}")
    met: bool = False

    def __post_init__(self) -> None:
        check_path(self.socket)
        self.metadata = handshake.own_metadata(self.client_id)

    @property
    def target(self) -> str:
        return f"unix:{quote(str(self.socket))}"

    def is_there(self, call: Call[Any]) -> bool:
        """Look at the socket and its folder before a call; False when a daemon that was met may be
        restarting.

        Raises NoDaemon and FailedPrecondition; see `folder.check_socket`.
        """
        check_folder(self.socket)
        try:
            check_socket(self.socket)
        except NoDaemon:
            if not self.met or call.repeat == "never":
                raise
            return False
        return True

    def deadline(self, call: Call[Any], timeout: float | None) -> float | None:
        """Seconds that a call may take: the caller's, the client's, or the call's own."""
        if timeout is not None:
            return timeout
        return call.deadline_s if self.timeout_s is None else self.timeout_s

    def greet(self, metadata: object) -> None:
        """Check the daemon's initial metadata. Raises VersionMismatch."""
        handshake.check_daemon(metadata or ())  # type: ignore[arg-type]
        self.met = True

    def error(self, failure: grpc.RpcError) -> MtplxError:
        """The typed error of a failed call."""
        return error_from(failure, self.socket)

    def may_repeat(self, call: Call[Any], failure: grpc.RpcError, begun: bool) -> bool:
        """Whether `failure` is a lost connection after which `call` may run again on a new one."""
        if not self.met or not is_lost_connection(failure):
            return False
        return call.repeat == "always" or (call.repeat == "before_first" and not begun)


def attempt_s(left_s: float) -> float:
    """Seconds that one look for a daemon may take when `left_s` are left of the wait."""
    return max(1.0, min(QUICK_S, left_s))


def not_ready(state: str) -> Unavailable:
    """The error of a wait that ran out."""
    return Unavailable("the daemon is not ready in time", state, "see `mtplx logs` or raise --timeout")


def ended_early() -> Internal:
    """The error of a stream without its last message."""
    return Internal("the daemon ended a stream without its result", None, "see `mtplx logs`")
