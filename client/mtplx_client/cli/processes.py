"""Processes of the daemon: starting one apart from this terminal, and waiting until one is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mtplxd.paths import Home

from mtplx_client.client import Client
from mtplx_client.errors import DeadlineExceeded, Unavailable
from mtplx_client.replies import Status

POLL_S = 0.02
START_S = 30.0


def start_daemon(home: Home, socket: Path) -> Status:
    """Start a daemon that outlives this terminal and wait until it serves.

    What it prints goes to `logs/mtplxd.out`. Raises Unavailable with its last words when it ends instead.
    """
    home.create()
    printed = home.logs / "mtplxd.out"
    descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    command = [sys.executable, "-m", "mtplxd", "--home", str(home.root), "--socket", str(socket)]
    with os.fdopen(descriptor, "wb") as file:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    end = time.monotonic() + START_S
    while True:
        try:
            with Client(socket) as client:
                return client.wait_ready(timeout=POLL_S)
        except Unavailable:
            if child.poll() is not None:
                raise Unavailable("the daemon did not start", _last_line(printed), f"see {printed}") from None
            if time.monotonic() > end:
                child.terminate()
                raise Unavailable("the daemon is not ready in time", None, f"see {printed}") from None


def wait_gone(pid: int, timeout_s: float, alive: Callable[[int], bool] | None = None) -> None:
    """Wait until no process has this id, here or where `alive` looks. Raises DeadlineExceeded."""
    end = time.monotonic() + timeout_s
    while (alive or is_alive)(pid):
        if time.monotonic() > end:
            raise DeadlineExceeded("the daemon still drains", f"pid {pid}", "wait longer with --timeout")
        time.sleep(POLL_S)


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs; a child of ours that ended is collected.

    One that ended and waits for its parent to collect it runs no more.
    """
    try:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if ended == pid:
            return False
    except ChildProcessError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _has_ended(pid)


def _has_ended(pid: int) -> bool:
    """Whether the system keeps no more of a process than its exit code; False where it does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        pass
    try:
        told = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return told.stdout.strip().startswith("Z")


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else "no message"
