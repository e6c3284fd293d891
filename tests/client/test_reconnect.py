"""A daemon that restarts: calls that may be repeated go on, a generation does not run twice."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client, NoDaemon
from mtplx_client.errors import Unavailable
from support.fake_daemon import FakeDaemon, fake_daemon, text


class SlowGate:
    """Passes bytes to a daemon's socket, each connection after a pause, as on a machine with much to do."""

    def __init__(self, behind: Path, pause_s: float) -> None:
        self.socket = behind.with_name("gate.sock")
        self._behind, self._pause_s = behind, pause_s
        self._listening = socket.socket(socket.AF_UNIX)
        self._opened: list[socket.socket] = [self._listening]

    def __enter__(self) -> SlowGate:
        self._listening.bind(str(self.socket))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._opened:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                threading.Event().wait(self._pause_s)
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


def test_a_daemon_that_is_slow_to_greet_is_no_missing_daemon(daemon: FakeDaemon) -> None:
    with SlowGate(daemon.socket, pause_s=0.3) as gate, Client(gate.socket) as client:
        assert client.status().pid == 4321
