"""A daemon that restarts: calls that may be repeated go on, a generation does not run twice."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import AsyncClient, Client, NoDaemon, NotAnswering, connection
from mtplx_client.errors import DeadlineExceeded, Unavailable
from support.fake_daemon import FakeDaemon, fake_daemon, text


class SlowGate:
    """Passes bytes to a daemon's socket once it is `open`, as on a machine with much to do until then."""

    def __init__(self, behind: Path) -> None:
        self.socket = behind.with_name("gate.sock")
        self.open = threading.Event()
        self._behind = behind
        self._listening = socket.socket(socket.AF_UNIX)
        self._opened: list[socket.socket] = [self._listening]

    def __enter__(self) -> SlowGate:
        self._listening.bind(str(self.socket))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        for end in self._opened:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        """Connections end, and new ones find it shut."""
        self.open.clear()
        for end in self._opened[1:]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Nobody listens any more."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.open.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self.open.wait(30)
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._behind))
                self._opened += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)


def test_status_goes_on_with_a_restarted_daemon(client: Client, daemon: FakeDaemon) -> None:
    assert client.status().pid == 4321
    daemon.stop()
    daemon.status.pid = 99
    daemon.start()
    assert client.status().pid == 99
    assert client.ls()[0].name == "smollm2-135m"


def test_a_call_waits_for_a_daemon_that_is_on_its_way_back(client: Client, daemon: FakeDaemon) -> None:
    client.status()
    daemon.stop()
    back = threading.Thread(target=daemon.start)
    back.start()
    assert client.show("smollm2-135m").pack.name == "smollm2-135m"
    back.join()


def test_a_daemon_that_never_was_there_is_told_at_once() -> None:
    with fake_daemon(started=False) as absent, Client(absent.socket, reconnect_s=3600) as client:
        with pytest.raises(NoDaemon) as caught:
            client.status()
        assert str(absent.socket) in str(caught.value)
        assert "mtplxd" in caught.value.fix


def test_a_stale_socket_is_a_missing_daemon() -> None:
    with fake_daemon(started=False) as absent:
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(absent.socket))
        with Client(absent.socket, reconnect_s=3600) as client, pytest.raises(NoDaemon):
            client.status()


def test_a_daemon_that_does_not_come_back_is_told_after_the_wait(daemon: FakeDaemon) -> None:
    with Client(daemon.socket, reconnect_s=0.1) as client:
        client.status()
        daemon.stop()
        with pytest.raises(NoDaemon):
            client.status()


def test_a_generation_is_not_sent_twice(client: Client, daemon: FakeDaemon) -> None:
    client.status()
    gone = threading.Event()

    def dies(_request: object, _context: object) -> Any:
        yield text("half", 1)
        threading.Thread(target=lambda: (daemon.stop(), gone.set())).start()
        daemon.cancelled.wait(10)

    daemon.answer = dies
    with pytest.raises(Unavailable):
        client.complete("hi")
    assert gone.wait(10)
    daemon.start()
    client.status()
    assert len(daemon.requests("Generate")) == 1


def test_watch_goes_on_with_a_restarted_daemon(client: Client, daemon: FakeDaemon) -> None:
    updates = client.watch()
    assert next(updates).pid == 4321
    assert daemon.watching.wait(10)
    daemon.stop()
    daemon.status.pid = 99
    daemon.start()
    assert next(updates).pid == 99
    updates.close()


def test_a_removal_is_not_repeated(daemon: FakeDaemon) -> None:
    with Client(daemon.socket, reconnect_s=3600) as client:
        client.status()
        daemon.stop()
        with pytest.raises(NoDaemon):
            client.rm("smollm2-135m")


@pytest.fixture
def gate(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowGate]:
    """A shut gate before the daemon, and looks at it in quick succession."""
    monkeypatch.setattr(connection, "LOOK_S", 0.02)
    with SlowGate(daemon.socket) as shut:
        yield shut


def test_a_daemon_that_is_slow_to_greet_is_waited_for_and_told_of_once(
    gate: SlowGate, daemon: FakeDaemon
) -> None:
    told: list[str] = []

    def hear(said: str) -> None:
        told.append(said)
        gate.open.set()

    with Client(gate.socket, reconnect_s=0, on_silence=hear) as client:
        assert client.status().pid == 4321
        assert client.complete("hi").finish_reason == "stop"
    assert len(told) == 1
    assert "does not answer yet" in told[0]
    assert len(daemon.requests("Generate")) == 1


def test_the_first_call_may_be_a_generation_and_is_sent_once(gate: SlowGate, daemon: FakeDaemon) -> None:
    with Client(gate.socket, on_silence=lambda _: gate.open.set()) as client:
        assert client.complete("hi").finish_reason == "stop"
    assert len(daemon.requests("Generate")) == 1


def test_the_asynchronous_client_waits_alike(gate: SlowGate, daemon: FakeDaemon) -> None:
    async def scenario() -> int:
        async with AsyncClient(gate.socket, reconnect_s=0, on_silence=lambda _: gate.open.set()) as client:
            await client.complete("hi")
            return (await client.status()).pid

    assert asyncio.run(scenario()) == 4321
    assert len(daemon.requests("Generate")) == 1


@pytest.mark.parametrize("timeout", [0.5, 1.0])
def test_a_daemon_that_never_answers_is_told_as_such_when_the_time_is_over(
    gate: SlowGate, timeout: float
) -> None:
    async def scenario() -> None:
        async with AsyncClient(gate.socket, reconnect_s=3600) as client:
            await client.status(timeout=timeout)

    with Client(gate.socket, reconnect_s=3600, timeout=timeout) as client:
        for call in (client.status, lambda: client.complete("hi"), lambda: asyncio.run(scenario())):
            with pytest.raises(NotAnswering, match="does not answer") as caught:
                call()
            assert "--timeout" in caught.value.fix
            assert str(gate.socket) in str(caught.value)


def test_a_daemon_too_busy_to_take_up_a_lost_connection_is_no_missing_one(
    gate: SlowGate, daemon: FakeDaemon
) -> None:
    gate.open.set()
    with Client(gate.socket, reconnect_s=0) as client:
        assert client.status().pid == 4321
        daemon.on_enter = gate.cut
        with pytest.raises(NotAnswering):
            client.status(timeout=0.5)
        daemon.on_enter = lambda: None
        gate.open.set()
        assert client.status().pid == 4321


def test_a_daemon_that_dies_before_it_answers_is_a_missing_one(gate: SlowGate) -> None:
    with Client(gate.socket, on_silence=lambda _: gate.leave()) as client, pytest.raises(NoDaemon):
        client.complete("hi")


def test_a_call_that_had_no_time_to_begin_with_says_nothing_of_the_daemon() -> None:
    wait = connection.Wait(Path("/s"), end=100.0, absent_s=5.0)
    assert 0 < wait.next_s(99.999, listening=True) < 0.01
    with pytest.raises(DeadlineExceeded, match="over before it began"):
        wait.next_s(100.0, listening=True)


def test_who_listens_has_the_time_of_the_call_and_who_does_not_its_own() -> None:
    wait = connection.Wait(Path("/s"), end=100.0, absent_s=5.0)
    assert wait.next_s(0.0, listening=True) == connection.LOOK_S
    assert not wait.silent
    assert wait.next_s(50.0, listening=True) == connection.LOOK_S
    assert wait.silent
    assert wait.next_s(99.5, listening=True) == 0.5
    assert wait.next_s(90.0, listening=False) == connection.LOOK_S
    assert not wait.silent
    assert wait.next_s(94.5, listening=False) == 0.5
    with pytest.raises(NoDaemon):
        wait.next_s(95.0, listening=False)
    with pytest.raises(NotAnswering):
        wait.next_s(100.0, listening=True)


def test_a_wait_for_a_daemon_that_came_back_begins_anew() -> None:
    wait = connection.Wait(Path("/s"), end=None, absent_s=5.0)
    wait.next_s(0.0, listening=False)
    wait.next_s(4.0, listening=True)
    assert wait.next_s(8.0, listening=False) == connection.LOOK_S
    assert wait.next_s(1e9, listening=True) == connection.LOOK_S


def test_a_daemon_that_was_never_met_is_not_waited_for() -> None:
    with pytest.raises(NoDaemon):
        connection.Wait(Path("/s"), end=None, absent_s=0.0).next_s(0.0, listening=False)
