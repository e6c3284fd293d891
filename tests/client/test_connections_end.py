"""A client that is closed keeps no connection, whatever became of its streams."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

import pytest
from mtplx_client import Client
from support.fake_daemon import FakeDaemon
from support.waiting import until


def sockets() -> int:
    """This process's open ones; the fake daemon's lie in it as well."""
    count = 0
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # the one that lists them is gone by now
            count += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
    return count


def leave_in_the_middle(client: Client) -> None:
    next(client.generate("hi"))


def hear_the_result(client: Client) -> None:
    client.load("smollm2-135m")


def hear_all(client: Client) -> None:
    list(client.generate("hi"))


def look_once(client: Client) -> None:
    next(client.watch(interval_s=30.0))


@pytest.mark.parametrize("use", [leave_in_the_middle, hear_the_result, hear_all, look_once])
def test_nothing_stays_open_behind_a_closed_client(daemon: FakeDaemon, use: Callable[[Client], None]) -> None:
    before = sockets()
    for _ in range(3):
        with Client(daemon.socket) as client:
            use(client)
    until(lambda: sockets() <= before)


def test_a_stream_may_be_left_after_its_client_is_closed(daemon: FakeDaemon) -> None:
    before = sockets()
    client = Client(daemon.socket)
    events = client.generate("hi")
    next(events)
    client.close()
    events.close()
    until(lambda: sockets() <= before)
