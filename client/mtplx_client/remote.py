"""A daemon of another machine, through ssh: its socket is forwarded to one of ours, in a folder that is ours alone.

    with forwarded("ssh://user@host") as socket, Client(socket) as client: ...

One ssh for as long as it is needed, with the user's own settings and keys. It ends with us, whatever ends us, since its
other end waits for our pipe. What is said over the socket is the client's.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import shutil
import socket as sockets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mtplx_client.errors import FailedPrecondition, InvalidArgument, Unavailable

SCHEME = "ssh://"
WAIT_S = 30.0
"""For the other machine to let us in and to answer."""
_SIGN = "mtplx-socket "
"""Before the path that the other side tells, since its shell may have something to say of its own."""
_DEFAULT = "${MTPLXD_SOCKET:-${MTPLXD_HOME:-$HOME/.mtplxd}/run/mtplxd.sock}"
_OPTIONS = (
    "ControlPersist=no", "ClearAllForwardings=yes", "ServerAliveInterval=15", "ServerAliveCountMax=3",
    "StreamLocalBindMask=0177", "ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=no", "RemoteCommand=none",
)  # fmt: skip
_LEAVE_CTRL_C = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Ctrl-C is for whoever reads the answer, and may go on afterwards; ssh heeds that it is ignored."""
_SHAPE = "ssh://[user@]host[:port][/path]"


@dataclass(frozen=True)
class Target:
    """Where to go. `path` is the socket there, empty for the one that its own settings choose."""

    host: str
    user: str = ""
    port: int | None = None
    path: str = ""

    @property
    def words(self) -> list[str]:
        """What ssh is told of it; the host is never taken for an option."""
        user = ["-l", self.user] if self.user else []
        port = ["-p", str(self.port)] if self.port else []
        return [*user, *port, "--", self.host]


def parse_target(url: str) -> Target:
    """Reads `ssh://[user@]host[:port][/path]`. Raises InvalidArgument."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad(url) from None
    host, user, path = parts.hostname or "", unquote(parts.username or ""), unquote(parts.path)
    path = "" if path == "/" else path
    odd = parts.password is not None or parts.query or parts.fragment or ":" in path
    if (
        not host
        or host.startswith("-")
        or user.startswith("-")
        or odd
        or not f"{host}{user}{path}".isprintable()
    ):
        raise _bad(url)
    return Target(host, user, port, path)


class Link:
    """An open forward: `socket` is the end on this machine."""

    def __init__(self, url: str, limit_s: float = WAIT_S, *, may_ask: bool | None = None) -> None:
        """Raises InvalidArgument for the address, Unavailable where the machine or its daemon cannot be reached."""
        self._target, self.url = parse_target(url), url
        self._ssh = shutil.which("ssh")
        if self._ssh is None:
            raise FailedPrecondition("no ssh on this machine", None, "install OpenSSH's client")
        self._end = time.monotonic() + limit_s
        self._folder = Path(tempfile.mkdtemp(prefix="mtplx-"))
        self.socket = self._folder / "s"
        self._process = self._start(sys.stdin.isatty() if may_ask is None else may_ask)
        try:
            self._forward(self._read_path())
        except BaseException:
            self.close()
            raise

    def is_alive(self, pid: int) -> bool:
        """Whether a process runs there."""
        self._end = time.monotonic() + WAIT_S
        look = f"kill -0 {pid} 2>/dev/null && case $(ps -o stat= -p {pid}) in Z*) false;; esac"
        return self._control(["-T"], f"exec sh -c {shlex.quote(look)}").returncode == 0

    def close(self) -> None:
        """Ends ssh, and removes our end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, may_ask: bool) -> subprocess.Popen[bytes]:
        path = shlex.quote(self._target.path) if self._target.path else f'"{_DEFAULT}"'
        there = f"s={path}; printf '{_SIGN}%s\\n' \"$s\"; exec cat"
        options = [*_OPTIONS, f"BatchMode={'no' if may_ask else 'yes'}", "ConnectTimeout=15"]
        command = [
            *_LEAVE_CTRL_C, str(self._ssh), "-M", "-S", self._control_path, "-T",
            *(f"-o{option}" for option in options), *self._target.words, f"exec sh -c {shlex.quote(there)}",
        ]  # fmt: skip
        with open(self._folder / "said", "wb") as said:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)

    def _read_path(self) -> str:
        """The socket's path there, as soon as we are let in."""
        assert self._process.stdout is not None
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, self._end - time.monotonic())):
                piece = os.read(self._process.stdout.fileno(), 4096)
                if not piece:
                    self._process.wait()
                    raise self._unreachable(self._last_words())
                text += piece
                for line in text.decode(errors="replace").splitlines(keepends=True):
                    if line.startswith(_SIGN) and line.endswith("\n"):
                        return line.removeprefix(_SIGN).rstrip("\n")
        raise self._unreachable("no answer in time")

    def _forward(self, path: str) -> None:
        if ":" in path or not path.startswith("/"):
            raise self._no_daemon(path)
        said = self._control(["-O", "forward", "-L", f"{self.socket}:{path}"])
        if said.returncode != 0:
            raise self._unreachable(said.stderr.decode(errors="replace").strip() or "it forwards nothing")
        if not self._answers():
            raise self._no_daemon(path)

    def _answers(self) -> bool:
        """A daemon speaks first; where none listens, ssh hangs up."""
        with sockets.socket(sockets.AF_UNIX) as line:
            line.settimeout(max(0.1, self._end - time.monotonic()))
            try:
                line.connect(str(self.socket))
                return line.recv(1) != b""
            except OSError:
                return False

    def _control(self, words: list[str], command: str = "") -> subprocess.CompletedProcess[bytes]:
        asked = [
            str(self._ssh),
            "-S",
            self._control_path,
            *words,
            *self._target.words,
            *([command] if command else []),
        ]
        limit = max(1.0, self._end - time.monotonic())
        try:
            return subprocess.run(
                asked, capture_output=True, stdin=subprocess.DEVNULL, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            raise self._unreachable("no answer in time") from None

    @property
    def _control_path(self) -> str:
        return str(self._folder / "c")

    def _last_words(self) -> str:
        lines = (self._folder / "said").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ssh ended with {self._process.returncode}"

    def _unreachable(self, why: str) -> Unavailable:
        host = self._target.host
        return Unavailable(
            "cannot reach the other machine", f"{host}: {why}", f"see whether `ssh {host}` works"
        )

    def _no_daemon(self, path: str) -> Unavailable:
        what = "no daemon answers on the other machine"
        return Unavailable(
            what, f"{self._target.host}, {path}", "start one there: `mtplx service start`, or `mtplxd`"
        )


@contextlib.contextmanager
def forwarded(url: str, limit_s: float = WAIT_S) -> Iterator[Path]:
    """The socket of an open forward, for a `with` block. Raises what `Link` raises."""
    link = Link(url, limit_s)
    try:
        yield link.socket
    finally:
        link.close()


def _bad(url: str) -> InvalidArgument:
    return InvalidArgument("no address of another machine", url, f"give {_SHAPE}", field="socket")
