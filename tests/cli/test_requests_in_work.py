"""Requests in work: cancelled by id, watched, and refused with a time to try again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from support.fake_daemon import Failure, FakeDaemon


def test_a_cancelled_request_is_told_and_an_unknown_one_fails(mtplx, daemon: FakeDaemon) -> None:
    assert mtplx("cancel", "r1").code == 0
    result = mtplx("cancel", "gone", "--json")
    assert (result.code, result.document) == (1, {"id": "gone", "found": False})
    assert "it has ended, or see `mtplx ps`" in result.err
    assert [request.id for request in daemon.requests("Cancel")] == ["r1", "gone"]


def test_cancelling_nothing_is_a_usage_error(mtplx, daemon: FakeDaemon) -> None:
    assert mtplx("cancel", " ").code == 2
    assert daemon.requests("Cancel") == []


def test_a_full_queue_tells_programs_when_to_come_back_and_nothing_is_tried_again(
    mtplx, daemon: FakeDaemon
) -> None:
    daemon.failures["Generate"] = Failure("RESOURCE_EXHAUSTED", "the queue is full", retry_s=2.5)
    result = mtplx("generate", "hi", "--json")
    assert (result.code, result.document["error"]["retry_after_s"]) == (1, 2.5)
    assert len(daemon.requests("Generate")) == 1


def test_an_error_without_a_time_names_none(mtplx, daemon: FakeDaemon) -> None:
    daemon.failures["Generate"] = Failure("RESOURCE_EXHAUSTED", "it can never fit")
    assert "retry_after_s" not in mtplx("generate", "hi", "--json").document["error"]


def test_a_watched_status_goes_on_until_it_is_interrupted(
    daemon: FakeDaemon, environment: dict[str, str]
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "mtplx_client", "status", "--watch", "--json"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    first = json.loads(child.stdout.readline())
    assert (first["final"], first["engine"]["rows"]) == (False, 1)
    assert daemon.watching.wait(10)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 130
    assert json.loads(out.splitlines()[-1])["error"]["code"] == "CANCELLED"


def test_a_stall_and_a_dead_engine_are_said_in_status(mtplx, daemon: FakeDaemon) -> None:
    daemon.status.engine.stalled = True
    daemon.status.engine.heartbeat_age_s = 130
    assert "STALLED, last went on 2 min ago: restart the daemon" in mtplx("status").out
    daemon.status.engine.alive = False
    assert "has died: restart the daemon" in mtplx("status").out
