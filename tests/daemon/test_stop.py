"""How a real daemon ends: it drains, it hurries when told twice, and it dies loudly with its engine."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from mtplx_client import Client
from mtplx_client.errors import Unavailable
from mtplx_client.events import Final, Text
from mtplx_proto.v1 import system_pb2, system_pb2_grpc
from support.daemon_process import DaemonProcess, running_daemon

PROMPT = "tell me"


@pytest.fixture
def daemon(home: Path, tiny: Path) -> Iterator[DaemonProcess]:
    """Serving, with the model loaded."""
    with running_daemon(home, "--drain-s", "60") as process:
        with Client(socket=process.socket) as client:
            client.load(str(tiny), force=True)
        yield process


def begin(client: Client, tiny: Path, tokens: int) -> Iterator[object]:
    """An answer whose first token is there."""
    stream = client.generate(PROMPT, model=str(tiny), force=True, max_tokens=tokens, ignore_eos=True)
    for event in stream:
        if isinstance(event, Text):
            break
    return stream


def test_an_answer_in_flight_is_finished_before_the_end(daemon: DaemonProcess, tiny: Path) -> None:
    with Client(socket=daemon.socket) as client:
        stream = begin(client, tiny, 400)
        daemon.signal(signal.SIGTERM)
        *_, last = stream
        assert isinstance(last, Final)
        assert (last.finish_reason, last.usage.completion_tokens) == ("length", 400)
    assert daemon.wait() == (0, "", "")
    assert not daemon.socket.exists()


def test_work_that_comes_while_it_drains_is_unavailable(daemon: DaemonProcess, tiny: Path) -> None:
    with Client(socket=daemon.socket) as client, Client(socket=daemon.socket) as late:
        late.status()
        stream = begin(client, tiny, 1500)
        watch = late.watch(0.1)
        daemon.signal(signal.SIGTERM)
        with pytest.raises(Unavailable):
            for _ in watch:
                pass
        with pytest.raises(Unavailable):
            late.complete(PROMPT, model=str(tiny), force=True, max_tokens=1)
        assert late.status().state == "draining"
        *_, last = stream
        assert isinstance(last, Final)
        assert last.finish_reason == "length"
    assert daemon.wait()[0] == 0


def test_a_second_signal_cancels_what_is_in_flight(daemon: DaemonProcess, tiny: Path) -> None:
    with Client(socket=daemon.socket) as client, Client(socket=daemon.socket) as looking:
        looking.status()
        stream = begin(client, tiny, 1900)
        daemon.signal(signal.SIGTERM)
        while looking.status().state != "draining":
            pass
        daemon.signal(signal.SIGTERM)
        *_, last = stream
        assert isinstance(last, Final)
        assert (last.finish_reason, last.stop_origin) == ("cancelled", "shutdown")
    assert daemon.wait()[0] == 0


def test_answers_that_outlast_the_drain_are_cancelled(home: Path, tiny: Path) -> None:
    with (
        running_daemon(home, "--drain-s", "0") as daemon,
        Client(socket=daemon.socket) as client,
    ):
        client.load(str(tiny), force=True)
        stream = begin(client, tiny, 1900)
        daemon.signal(signal.SIGTERM)
        *_, last = stream
        assert isinstance(last, Final)
        assert last.stop_origin == "shutdown"
        assert daemon.wait()[0] == 0


def test_idle_watchers_do_not_hold_up_the_end(daemon: DaemonProcess) -> None:
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        stub = system_pb2_grpc.SystemStub(channel)
        watchers = [stub.Watch(system_pb2.WatchRequest(interval_s=3600)) for _ in range(20)]
        for watcher in watchers:
            next(watcher)
        assert daemon.stop()[0] == 0
        for watcher in watchers:
            with pytest.raises(grpc.RpcError):
                next(watcher)


def test_a_client_stops_it(daemon: DaemonProcess) -> None:
    with Client(socket=daemon.socket) as client:
        assert client.stop().pid == daemon.pid
    assert daemon.wait() == (0, "", "")


def test_a_kill_loses_nothing_and_the_next_one_serves(daemon: DaemonProcess, home: Path, tiny: Path) -> None:
    with Client(socket=daemon.socket) as client:
        stream = begin(client, tiny, 1900)
        daemon.kill()
        with pytest.raises(Unavailable):
            for _ in stream:
                pass
        with running_daemon(home) as second:
            reply = client.complete(PROMPT, model=str(tiny), force=True, max_tokens=4, ignore_eos=True)
            assert reply.usage.completion_tokens == 4
            assert client.status().pid == second.pid


def test_many_starts_and_stops_all_end_well(home: Path) -> None:
    for _ in range(5):
        with running_daemon(home) as daemon:
            assert daemon.stop() == (0, "", "")


BREAK = """
import mtplxd.engine.engine as engine
def broken(self):
    raise SystemError("the thread is gone")
engine.Engine._next_call = broken
from mtplxd.__main__ import main
raise SystemExit(main())
"""


def test_a_dead_engine_ends_the_daemon_loudly(home: Path) -> None:
    daemon = DaemonProcess(home)
    daemon._command[1:] = ["-c", BREAK]
    code, _, err = daemon.start().wait()
    assert code == 1
    assert "Traceback" not in err
    assert "the engine has died" in daemon.log()
