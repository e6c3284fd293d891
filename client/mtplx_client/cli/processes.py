"""Processes of the daemon: starting one apart from this terminal, and waiting until one is gone."""

from __future__ import annotations

import os
import time

from mtplxd.errors import DeadlineExceeded

POLL_S = 0.02


def wait_gone(pid: int, timeout_s: float) -> None:
    """Wait until no process has this id. Raises DeadlineExceeded."""
    end = time.monotonic() + timeout_s
    while is_alive(pid):
        if time.monotonic() > end:
            raise DeadlineExceeded("the daemon still drains", f"pid {pid}", "wait longer with --timeout")
        time.sleep(POLL_S)


def is_alive(pid: int) -> bool:
    """Whether a process of this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
