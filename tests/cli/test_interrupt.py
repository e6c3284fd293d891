"""Ctrl-C: the request ends at the daemon, what was printed ends properly, the exit code is 130."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_daemon import FakeDaemon, text


@pytest.fixture
def endless(daemon: FakeDaemon) -> None:
    def answer(_request: object, _context: object) -> Any:
        yield text("Once", 7)
        daemon.cancelled.wait(30)

    daemon.answer = answer


def started(environment: dict[str, str], *argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mtplx_client", *argv],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def interrupted(environment: dict[str, str], *argv: str, until: bytes) -> tuple[int, str, str]:
    """Run a command in a process of its own and interrupt it once it has written `until`."""
    child = started(environment, *argv)
    assert child.stdout is not None
    seen = b""
    while until not in seen:
        byte = child.stdout.read(1)
        assert byte, child.communicate()
        seen += byte
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    return child.returncode, (seen + out).decode(), err.decode()


@pytest.mark.usefixtures("endless")
def test_ctrl_c_cancels_the_answer(environment: dict[str, str], daemon: FakeDaemon) -> None:
    code, out, err = interrupted(environment, "generate", "hi", until=b"Once")
    assert (code, out, err) == (130, "Once\n", "error: interrupted\n")
    assert daemon.cancelled.wait(30)


@pytest.mark.usefixtures("endless")
def test_with_json_the_last_line_is_still_final(environment: dict[str, str], daemon: FakeDaemon) -> None:
    code, out, _ = interrupted(environment, "generate", "hi", "--json", until=b"\n")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 130
    answer = lines[-1]
    assert [line["final"] for line in lines].count(True) == 1
    assert (answer["text"], answer["tokens"]) == ("Once", [7])
    assert (answer["finish_reason"], answer["stop_origin"], answer["final"]) == ("cancelled", "client", True)
    assert daemon.cancelled.wait(30)


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_ctrl_c_ends_a_measurement_with_nothing_on_stdout(
    environment: dict[str, str], daemon: FakeDaemon, command: str
) -> None:
    entered, left = threading.Event(), threading.Event()
    daemon.on_enter = entered.set

    def endless() -> Iterator[Any]:
        left.wait(30)
        yield from ()

    daemon.progress = endless()
    argv = (
        ("verify", "m") if command == "verify" else ("bench", "decode", "--model", "m", "--path", "inprocess")
    )
    child = started(environment, *argv)
    assert entered.wait(30)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    left.set()
    assert (child.returncode, out, err.decode().splitlines()[-1]) == (130, b"", "error: interrupted")
