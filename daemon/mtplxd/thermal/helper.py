"""A client of the fan helper: one connection, one line out and one line back. Decides nothing and keeps no time."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplxd.thermal.fand.protocol import REPLY_CAP, Request, say

PATIENCE_S = 2.0
"""A helper that lives answers in a millisecond."""


class HelperGone(Exception):
    """Nobody answers: not installed, ended, or stalled. `installed` says that its socket is there."""

    def __init__(self, text: str, *, installed: bool) -> None:
        super().__init__(text)
        self.installed = installed


class HelperRefused(Exception):
    """It answered no; `code` is the protocol's."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Fan:
    """A fan as the helper tells of it, speeds in rpm."""

    rpm: float
    target: float
    min: float
    max: float
    automatic: bool


@dataclass(frozen=True)
class Held:
    """The helper's state: automatic, restoring, taking, held, unreadable. `lease_s` is left of all leases, None without
    one; `fans` None where they cannot be read.
    """

    state: str
    fans: tuple[Fan, ...] | None = None
    lease_s: float | None = None
    holders: int = 0
    backend: str = ""
    error: str = ""
    attempts: int = 0
    restored: int = 0
    pid: int = 0


class Helper:
    """Connects when it is first asked, and again after a failure. For one thread at a time; each call may take
    `patience_s`. The lease is the connection's: closing it gives fans back.
    """

    def __init__(self, path: Path, patience_s: float = PATIENCE_S) -> None:
        self._path, self._patience_s = path, patience_s
        self._connection: socket.socket | None = None
        self._rest = b""

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def hold(self, seconds: float) -> str:
        """Takes or renews the lease; the state that fans were in then. Raises HelperGone, HelperRefused."""
        return str(self._ask(Request("hold", seconds)).get("state", ""))

    def release(self) -> None:
        """Gives the lease back and the connection up; nothing is raised: a helper that is gone has given fans back."""
        if self._connection is not None:
            with contextlib.suppress(HelperGone, HelperRefused):
                self._ask(Request("release"))
        self.close()

    def status(self) -> Held:
        """How fans are. Raises HelperGone, HelperRefused."""
        return _read_status(self._ask(Request("status")))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._rest = None, b""

    def _ask(self, request: Request) -> dict[str, Any]:
        try:
            connection = self._connection or self._connect()
            with contextlib.suppress(BrokenPipeError):  # a refusal may lie there to be read
                connection.sendall(say(request))
            found = json.loads(self._line(connection))
        except (OSError, ValueError) as error:
            self.close()
            text = "it is not installed" if not self._path.exists() else f"it does not answer ({error})"
            raise HelperGone(text, installed=self._path.exists()) from None
        if not isinstance(found, dict) or not found.get("ok"):
            told = found if isinstance(found, dict) else {}
            if told.get("error") == "denied":
                self.close()
            raise HelperRefused(
                str(told.get("error", "bad-reply")), str(told.get("message", "a reply of no sense"))
            )
        return found

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._patience_s)
        try:
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        self._connection, self._rest = connection, b""
        return connection

    def _line(self, connection: socket.socket) -> bytes:
        while b"\n" not in self._rest:
            data = connection.recv(4096)
            if not data:
                raise OSError("it closed the connection")
            self._rest += data
            if len(self._rest) > REPLY_CAP:
                raise OSError("it says too much")
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def _read_status(told: dict[str, Any]) -> Held:
    """Raises HelperRefused where the words make no sense: the other side is of another version then."""
    try:
        fans = told["fans"]
        return Held(
            state=str(told["state"]),
            fans=None if fans is None else tuple(Fan(**fan) for fan in fans),
            lease_s=told.get("lease_s"),
            holders=int(told.get("holders", 0)),
            backend=str(told.get("backend", "")),
            error=str(told.get("error", "")),
            attempts=int(told.get("attempts", 0)),
            restored=int(told.get("restored", 0)),
            pid=int(told.get("pid", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise HelperRefused("bad-reply", f"its status makes no sense ({error})") from None
