"""A real daemon and a real helper over fans that do not exist: held for who asks, given back when the daemon ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplx_client import Client
from mtplxd.errors import InvalidArgument
from support.daemon_process import DaemonProcess, short_folder
from support.fake_smc import FakeSmc
from support.fand import Fand
from support.waiting import until


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with short_folder() as home:
        yield home


@pytest.fixture(scope="module")
def smc(home: Path) -> FakeSmc:
    return FakeSmc(home / "smc")


@pytest.fixture(scope="module")
def daemon(home: Path, smc: FakeSmc) -> Iterator[DaemonProcess]:
    helper = Fand(home / "helper", smc).start()
    process = DaemonProcess(home, MTPLXD_FAN_SOCKET=str(helper.socket), MTPLXD_FAN_LEASE="1")
    process.start()
    yield process
    process.kill()
    helper.kill()


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(socket=daemon.socket) as client:
        yield client


def test_fans_are_told_as_the_helper_reads_them(client: Client) -> None:
    found = client.fans()
    assert (found.mode, found.helper, found.fan_state, found.lease) == ("auto", "ready", "automatic", None)
    assert [(fan.automatic, fan.max) for fan in found.fans] == [(True, 5800.0), (True, 5801.0)]
    assert found.power
    assert found.state
    status = client.status().thermal
    assert (status.mode, status.helper, status.fans) == ("auto", "ready", found.fans)


def test_a_stream_holds_fans_until_it_is_closed(client: Client, smc: FakeSmc) -> None:
    stream = client.hold_fans("bench clients")
    next(stream)
    until(lambda: smc.held)
    lease = client.fans().lease
    assert lease is not None
    assert lease.reason == "bench clients"
    stream.close()
    until(lambda: smc.automatic)
    assert client.fans().lease is None


def test_a_mode_is_kept_and_a_daemon_that_ends_gives_fans_back_before_it_is_gone(
    client: Client, daemon: DaemonProcess, smc: FakeSmc, home: Path
) -> None:
    with pytest.raises(InvalidArgument, match="give auto, smart, max"):
        client.set_fans("loud")
    assert client.set_fans("max").mode == "max"
    assert 'fans = "max"' in (home / "config.toml").read_text()
    until(lambda: smc.held)
    stream = client.hold_fans()  # a drain does not wait for it
    next(stream)
    client.stop()
    daemon.wait()
    until(lambda: smc.automatic)
    stream.close()
