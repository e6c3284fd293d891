"""Builds and the life of a real daemon: killed, stopped, started again; the steps need no model."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.builds import BuildOutcome, BuildStep
from mtplx_client.errors import FailedPrecondition, ResourceExhausted, Unavailable
from support.daemon_process import DaemonProcess, short_folder
from support.fake_forge import journal, make_source, steer
from support.waiting import until

LIMIT_S = 60.0


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with short_folder() as folder:
        monkeypatch.setenv("MTPLXD_HOME", str(folder))
        make_source(folder / "source")
        yield folder


@contextmanager
def daemon(home: Path) -> Iterator[DaemonProcess]:
    """One life of a daemon; killed at its end unless it has ended."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    process = DaemonProcess(home, PYTHONPATH=path)
    process._command = [sys.executable, "-m", "support.fake_forge_daemon"]
    process.start()
    try:
        assert process.ready_line.startswith("ready "), process.wait()
        yield process
    finally:
        if process.running:
            process.kill()


def read_until(events: Any, message: str) -> BuildStep:
    """The first news with these words; the stream is left there."""
    for event in events:
        if isinstance(event, BuildStep) and message in event.message:
            return event
    raise AssertionError("the stream ended")


def ended(events: Any) -> BuildOutcome:
    *_, last = events
    assert isinstance(last, BuildOutcome)
    return last


def gone(run: str) -> bool:
    """Whether no process of a run is left."""
    return run not in os.popen("ps -axww -o args=").read()


def test_a_killed_daemon_leaves_a_build_that_the_next_one_takes_up(home: Path) -> None:
    steer(hang="extract")
    with daemon(home) as process, Client(socket=process.socket) as client:
        events = client.build(str(home / "source"), "mine")
        run = read_until(events, "hangs").run
        process.kill()
        with pytest.raises(Unavailable):
            ended(events)
    until(lambda: gone(run))
    steer()
    with daemon(home) as process, Client(socket=process.socket) as client:
        [listed] = client.builds()
        assert (listed.run, listed.status, listed.step, listed.resumable) == (
            run,
            "interrupted",
            "extract",
            True,
        )
        assert ended(client.resume_build("mine")).pack == "mine"
        assert [pack.name for pack in client.ls()] == ["mine"]
        assert client.show("mine").pack.tier == "verified"
    assert journal() == ["fetch", "convert", "extract", "extract", "calibrate", "measure", "verify"]


def test_a_daemon_that_is_stopped_ends_its_worker_and_itself_at_once(home: Path) -> None:
    steer(hang="convert")
    with daemon(home) as process, Client(socket=process.socket) as client:
        events = client.build(str(home / "source"), "mine")
        run = read_until(events, "hangs").run
        code, _, _ = process.stop()
        assert code == 0
        with pytest.raises(Unavailable, match="the daemon is stopping"):
            ended(events)
        assert gone(run)
    assert "Traceback" not in process.log()


def test_a_killed_worker_leaves_the_daemon_serving(home: Path) -> None:
    steer(kill="convert")
    with daemon(home) as process, Client(socket=process.socket) as client:
        with pytest.raises(ResourceExhausted, match="the build was killed"):
            ended(client.build(str(home / "source"), "mine"))
        assert client.status().state == "serving"
        steer()
        assert ended(client.resume_build("mine")).pack == "mine"
        with pytest.raises(FailedPrecondition, match="a pack of this name is there"):
            ended(client.build(str(home / "source"), "mine"))


def test_a_worker_steps_back_behind_everybody_else(home: Path) -> None:
    steer(hang="convert")
    with daemon(home) as process, Client(socket=process.socket) as client:
        run = read_until(client.build(str(home / "source"), "mine"), "hangs").run
        lines = [line.split(None, 2) for line in os.popen("ps -axww -o pid=,nice=,args=").read().splitlines()]
        [(_, nice, _)] = [line for line in lines if run in line[2] and "fake_forge_worker" in line[2]]
        assert int(nice) >= 10
        client.cancel_build(run)
        until(lambda: gone(run))
