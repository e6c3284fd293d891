"""A pull inside a real daemon: it ends with its client and with the daemon, and leaves no child behind."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from mtplx_client import Client
from mtplx_client.errors import NotFound
from mtplx_proto.v1 import models_pb2, models_pb2_grpc
from support.daemon_process import DaemonProcess, running_daemon

MODEL = "smollm2-135m"


class SilentIndex:
    """A package index that takes a request and never answers; it notices when its client dies."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)
        self.port = self._listener.getsockname()[1]
        self._asking: socket.socket | None = None

    def wait_for_request(self) -> None:
        self._asking, _ = self._listener.accept()
        self._asking.settimeout(60)
        assert self._asking.recv(65536)

    def wait_for_hang_up(self) -> None:
        assert self._asking is not None
        try:
            while self._asking.recv(65536):
                pass
        except ConnectionResetError:
            pass

    def close(self) -> None:
        self._listener.close()
        if self._asking is not None:
            self._asking.close()


@pytest.fixture
def index() -> Iterator[SilentIndex]:
    index = SilentIndex()
    yield index
    index.close()


@pytest.fixture
def daemon(home: Path, index: SilentIndex) -> Iterator[DaemonProcess]:
    pip = {
        "PIP_INDEX_URL": f"http://127.0.0.1:{index.port}/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_RETRIES": "0",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    with running_daemon(home, **pip) as process:
        yield process


def test_a_pull_ends_with_its_client(daemon: DaemonProcess, index: SilentIndex) -> None:
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        call = models_pb2_grpc.ModelsStub(channel).Pull(models_pb2.PullRequest(name=MODEL))
        index.wait_for_request()
        call.cancel()
        index.wait_for_hang_up()
    with Client(socket=daemon.socket) as client:
        assert client.ls() == ()
    assert "Traceback" not in daemon.log()


def test_a_stop_does_not_wait_for_a_pull(daemon: DaemonProcess, index: SilentIndex) -> None:
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        call = models_pb2_grpc.ModelsStub(channel).Pull(models_pb2.PullRequest(name=MODEL))
        index.wait_for_request()
        assert daemon.stop() == (0, "", "")
        index.wait_for_hang_up()
        with pytest.raises(grpc.RpcError) as ended:
            for _ in call:
                pass
        assert ended.value.code() == grpc.StatusCode.CANCELLED


def test_an_unknown_name_is_not_found(daemon: DaemonProcess) -> None:
    with Client(socket=daemon.socket) as client, pytest.raises(NotFound, match=MODEL):
        client.pull("smolm2-135m")
