"""A real `mtplxd` process in a folder of its own, for tests; the folder is short enough for a socket."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

READY_LIMIT_S = 60.0
"""How long a test waits before it calls a start failed; no test asserts a time."""
END_LIMIT_S = 60.0
PIECE_S = 0.25


@contextmanager
def short_folder() -> Iterator[Path]:
    """A private folder with a short path; pytest's own are too long for sockets on macOS."""
    folder = Path(tempfile.mkdtemp(prefix="mtplx-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clean_environment(home: Path, **extra: str) -> dict[str, str]:
    """This process's environment without settings of ours, then `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MTPLXD_", "HF_"))}
    return {**kept, "MTPLXD_HOME": str(home), **extra}


class DaemonProcess:
    """One process. `start` returns once the ready line is read, or the process has ended."""

    def __init__(
        self, home: Path, *arguments: str, module: Sequence[str] = ("mtplxd",), **environment: str
    ) -> None:
        self.home = home
        self.socket = home / "run" / "mtplxd.sock"
        self._command = [sys.executable, "-m", *module, *arguments]
        self._environment = clean_environment(home, **environment)
        self._process: subprocess.Popen[bytes] | None = None
        self.ready_line = ""

    def start(self) -> DaemonProcess:
        self.spawn()
        self.await_ready()
        return self

    def spawn(self) -> None:
        """Starts the process and does not wait for it."""
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def await_ready(self) -> None:
        """Waits for the ready line, or for its end; in short pieces, so that a machine that stood still costs one."""
        assert self._process is not None
        assert self._process.stdout is not None
        pieces = range(int(READY_LIMIT_S / PIECE_S))
        assert any(select.select([self._process.stdout], [], [], PIECE_S)[0] for _ in pieces), "no ready line"
        self.ready_line = self._process.stdout.readline().decode().rstrip("\n")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> tuple[int, str, str]:
        """Exit code, what else it wrote to stdout, and stderr; killed if it does not end."""
        assert self._process is not None
        try:
            out, err = self._process.communicate(timeout=END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        return self._process.returncode, out.decode(), err.decode()

    def stop(self) -> tuple[int, str, str]:
        """SIGTERM, then its end."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """kill -9, reaped."""
        self.signal(signal.SIGKILL)
        self.wait()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Everything in its log files."""
        return "".join(path.read_text() for path in sorted((self.home / "logs").glob("mtplxd.log*")))


@contextmanager
def running_daemon(
    home: Path, *arguments: str, module: Sequence[str] = ("mtplxd",), **environment: str
) -> Iterator[DaemonProcess]:
    """A started daemon, killed at the end if the test left it."""
    daemon = DaemonProcess(home, *arguments, module=module, **environment).start()
    try:
        assert daemon.ready_line.startswith("ready "), daemon.wait()
        yield daemon
    finally:
        if daemon.running:
            daemon.kill()
