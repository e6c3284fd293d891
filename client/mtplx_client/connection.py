"""What both clients need to reach the daemon: where it is, channel options, and when a lost call may be
repeated.

Owns the policy, not the channel: opening, waiting and calling differ between blocking and asynchronous code.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
from mtplxd.config import resolve_settings
from mtplxd.paths import absolute, resolve_home

from mtplx_client import handshake
from mtplx_client.calls import QUICK_S, Call
from mtplx_client.errors import DeadlineExceeded, Internal, MtplxError, NoDaemon, NotAnswering, Unavailable
from mtplx_client.folder import check_folder, check_path, check_socket, is_listening
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
"""gRPC's own thread reads what comes, also of streams: one that is read on the caller's thread instead, and that nobody
hears out, keeps its connection open behind a closed channel.
"""
POLL_S = 0.05
"""Pause between two looks for a daemon that is not there yet."""
BRIEF_S = 0.05
"""A call with less time left could be answered by nobody: that it ran out says nothing of the daemon."""
LOOK_S = 1.0
"""Pause between two looks at whether a daemon that does not answer is still there."""


def resolve_socket(socket: str | os.PathLike[str] | None, home: str | os.PathLike[str] | None) -> Path:
    """The daemon's socket: the given one, else MTPLXD_SOCKET, config.toml, or the home's own."""
    if socket is not None:
        return absolute(os.fspath(socket))
    return resolve_settings(resolve_home(None if home is None else os.fspath(home))).socket


@dataclass
class Wait:
    """One call's wait for a connection: a daemon that listens has all the time that the call has, until `end` on the
    monotonic clock (None: any), one that does not `absent_s` to come back. Pure.
    """

    socket: Path
    end: float | None
    absent_s: float
    silent: bool = False
    """Whether a daemon listened at an earlier look and there was no answer until now."""
    _seen: bool = False
    _absent_since: float | None = None
    _given: float | None = None

    def next_s(self, now: float, listening: bool) -> float:
        """Seconds until the next look. Raises NotAnswering and NoDaemon when the wait is over, DeadlineExceeded where
        the call had no time to begin with."""
        if self._given is None and self.end is not None:
            self._given = self.end - now
        self.silent = listening and self._seen
        self._seen = listening
        if listening:
            self._absent_since = None
            left = LOOK_S
        else:
            self._absent_since = now if self._absent_since is None else self._absent_since
            left = min(LOOK_S, self._absent_since + self.absent_s - now)
        if self.end is not None:
            left = min(left, self.end - now)
        if left <= 0:
            raise self._over(listening)
        return left

    def _over(self, listening: bool) -> MtplxError:
        if not listening:
            return NoDaemon(self.socket)
        if self._given is not None and self._given < BRIEF_S:
            return DeadlineExceeded(
                "the time of the call was over before it began",
                f"{max(self._given, 0.0):.3f} s",
                "allow it more time",
            )
        return NotAnswering(self.socket)


@dataclass
class Peer:
    """The daemon as one client knows it. `met` becomes true with its first answer.

    `on_silence` is told, once a wait, of a daemon that is there and does not answer yet.
    """

    socket: Path
    timeout_s: float | None = None
    reconnect_s: float = 5.0
    on_silence: Callable[[str], None] | None = None
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

    def end(self, call: Call[Any], timeout: float | None) -> float | None:
        """When a call's time is over, on the monotonic clock: the caller's, the client's, or the call's own."""
        if timeout is None:
            timeout = call.deadline_s if self.timeout_s is None else self.timeout_s
        return None if timeout is None else time.monotonic() + timeout

    def wait(self, call: Call[Any], end: float | None) -> Wait:
        """A wait for a connection; only a daemon that was met is expected to come back."""
        comes_back = self.met and call.repeat != "never"
        return Wait(self.socket, end, self.reconnect_s if comes_back else 0.0)

    def look(self, wait: Wait) -> float:
        """Seconds until the next look at a connection that is being made. Raises NotAnswering and NoDaemon."""
        told = wait.silent
        seconds = wait.next_s(time.monotonic(), is_listening(self.socket))
        if wait.silent and not told and self.on_silence is not None:
            self.on_silence("the daemon does not answer yet: waiting (Ctrl-C ends the wait)")
        return seconds

    def greet(self, metadata: object) -> None:
        """Check the daemon's initial metadata. Raises VersionMismatch."""
        handshake.check_daemon(metadata or ())  # type: ignore[arg-type]
        self.met = True

    def error(self, failure: grpc.RpcError, begun: bool) -> MtplxError:
        """The typed error of a failed call; `begun` = it had brought something already."""
        if not is_lost_connection(failure) or not is_listening(self.socket):
            return error_from(failure, self.socket)
        if begun:
            return Unavailable("the connection to the daemon was lost", self.socket, "send the request again")
        return NotAnswering(self.socket)

    def may_repeat(self, call: Call[Any], failure: grpc.RpcError, begun: bool) -> bool:
        """Whether `failure` is a lost connection after which `call` may run again on a new one."""
        if not self.met or not is_lost_connection(failure):
            return False
        return call.repeat == "always" or (call.repeat == "before_first" and not begun)


def left_s(end: float | None) -> float | None:
    """Seconds until a call's end, for its deadline on the wire."""
    return None if end is None else max(0.0, end - time.monotonic())


def attempt_s(left: float) -> float:
    """Seconds that one look for a daemon may take when `left` are left of the wait."""
    return max(1.0, min(QUICK_S, left))


def not_ready(state: str) -> Unavailable:
    """The error of a wait that ran out."""
    return Unavailable("the daemon is not ready in time", state, "see `mtplx logs` or raise --timeout")


def ended_early() -> Internal:
    """The error of a stream without its last message."""
    return Internal("the daemon ended a stream without its result", None, "see `mtplx logs`")
