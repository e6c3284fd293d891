"""status, wait-ready and stop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from mtplx_client.cli.processes import is_alive
from support.fake_daemon import FakeDaemon


@pytest.fixture
def process(daemon: FakeDaemon) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose id the fake daemon tells as its own; ends when its standard input does."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    daemon.status.pid = child.pid
    yield child
    child.kill()
    child.wait()


def test_stop_waits_until_the_process_is_gone(
    mtplx, daemon: FakeDaemon, process: subprocess.Popen[bytes]
) -> None:
    daemon.on_shutdown = process.kill
    result = mtplx("stop")
    assert (result.code, result.out) == (0, f"the daemon has stopped (pid {process.pid})\n")
    assert not is_alive(process.pid)


def test_stop_tells_of_a_drain_that_goes_on(mtplx, process: subprocess.Popen[bytes]) -> None:
    result = mtplx("stop", "--timeout", "0.2", "--json")
    assert result.code == 1
    assert result.document["error"]["code"] == "DEADLINE_EXCEEDED"
    assert str(process.pid) in result.document["error"]["message"]


def test_stop_without_a_daemon_is_4(mtplx, daemon: FakeDaemon) -> None:
    daemon.stop()
    assert mtplx("stop").code == 4


def test_wait_ready_sees_a_daemon_become_ready(mtplx, daemon: FakeDaemon) -> None:
    daemon.status.state = "starting"
    left = 3

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            daemon.status.state = "serving"

    daemon.on_enter = count
    result = mtplx("wait-ready", "--json")
    assert result.code == 0
    assert result.document["ready"] is True
    assert left == 0


def test_wait_ready_gives_up_as_4(mtplx, daemon: FakeDaemon) -> None:
    daemon.stop()
    result = mtplx("wait-ready", "--timeout", "0.1")
    assert result.code == 4
    assert result.err.startswith("error: the daemon is not ready in time")


def test_status_is_cut_by_its_timeout(mtplx, daemon: FakeDaemon) -> None:
    import threading

    release = threading.Event()
    daemon.on_enter = lambda: release.wait(30)
    result = mtplx("status", "--timeout", "0.2")
    release.set()
    assert result.code == 4
    assert result.err.startswith(f"error: the daemon is there but does not answer ({daemon.socket}): ")
