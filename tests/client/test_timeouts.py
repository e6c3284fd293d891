"""Deadlines: quick calls have one of their own, streams only the caller's."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from mtplx_client import Client, NotAnswering
from mtplx_client.errors import DeadlineExceeded
from support.fake_daemon import FakeDaemon, final, text


def test_an_answer_past_the_deadline_raises_and_ends_at_the_daemon(
    client: Client, daemon: FakeDaemon
) -> None:
    def slow(_request: object, _context: object) -> Any:
        yield text("a", 1)
        daemon.cancelled.wait(10)

    daemon.answer = slow
    with pytest.raises(DeadlineExceeded, match="--timeout"):
        client.complete("hi", timeout=0.2)
    assert daemon.cancelled.wait(10)


def test_deadlines_reach_the_daemon(daemon: FakeDaemon) -> None:
    left: list[float | None] = []

    def note(_request: object, context: Any) -> Any:
        left.append(context.time_remaining())
        yield final()

    daemon.answer = note
    with Client(daemon.socket) as client:
        client.complete("hi")
        client.complete("hi", timeout=50)
    with Client(daemon.socket, timeout=70) as client:
        client.complete("hi")
        client.complete("hi", timeout=20)
    assert left[0] is None or left[0] > 1e9
    assert [round(seconds or 0, -1) for seconds in left[1:]] == [50, 70, 20]


@pytest.mark.parametrize("met", [False, True])
def test_a_daemon_that_hangs_does_not_hang_status(daemon: FakeDaemon, met: bool) -> None:
    release = threading.Event()
    with Client(daemon.socket, timeout=0.2) as client:
        if met:
            client.status(timeout=30)
        daemon.on_enter = lambda: release.wait(10)
        with pytest.raises(DeadlineExceeded if met else NotAnswering):
            client.status()
        release.set()
