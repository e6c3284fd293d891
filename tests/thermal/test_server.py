"""The helper's socket: who may ask, what a lease does, and clients that lie, stall, flood or say nonsense.

The server runs in a thread of the test, on a clock that the test can move on; fans are scripted.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.thermal.fand import server as module
from mtplxd.thermal.fand.binding import CannotServe, claim, listen, make_folder
from mtplxd.thermal.fand.keeper import Keeper
from mtplxd.thermal.fand.lease import RATE_BURST
from mtplxd.thermal.fand.peers import read_ucred, read_xucred
from mtplxd.thermal.fand.server import MOST_BAD_LINES, MOST_CLIENTS, Server
from mtplxd.thermal.helper import Helper, HelperGone, HelperRefused
from support.scripted_fans import ScriptedFans
from support.waiting import until


class Rig:
    def __init__(self, folder: Path, fans: ScriptedFans) -> None:
        self.path, self.fans, self.said, self.ahead = folder / "s", fans, list[str](), 0.0
        self.keeper = Keeper(fans, self.said.append)
        self.server = Server(
            listen(self.path, os.geteuid()),
            self.keeper,
            frozenset({os.geteuid()}),
            self.said.append,
            lambda: time.monotonic() + self.ahead,
        )
        self.ended: bool | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.ended = self.server.run()

    def start(self) -> Rig:
        self.thread.start()
        until(lambda: self.keeper.ready)
        return self

    def advance(self, seconds: float) -> None:
        """The clock goes on, and the helper looks at it."""
        self.ahead += seconds
        client = Helper(self.path)
        client.status()
        client.status()
        client.close()

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()

    def raw(self, data: bytes) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(str(self.path))
        connection.sendall(data)
        return connection


@pytest.fixture
def rig(folder: Path) -> Iterator[Rig]:
    made = Rig(folder, ScriptedFans()).start()
    yield made
    if made.thread.is_alive():
        made.stop()


def read_all(connection: socket.socket) -> list[dict]:
    """Every reply until the helper closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):  # it closed with some of what was sent unread
        while piece := connection.recv(4096):
            data += piece
    return [json.loads(line) for line in data.splitlines()]


def test_fans_are_held_for_a_lease_and_not_longer(rig: Rig) -> None:
    client = Helper(rig.path)
    client.hold(10)
    until(lambda: rig.fans.modes == ["held", "held"])
    assert 9 < (client.status().lease_s or 0) <= 10
    rig.advance(5)
    assert client.status().state == "held"
    rig.advance(5)  # the client is there and says nothing: it has stalled
    until(lambda: rig.fans.modes == ["auto", "auto"])
    assert client.status().lease_s is None
    assert any("run out" in line for line in rig.said)


def test_a_client_that_goes_takes_its_lease_along(rig: Rig) -> None:
    client = Helper(rig.path)
    client.hold(30)
    until(lambda: rig.fans.modes == ["held", "held"])
    client.close()
    until(lambda: rig.fans.modes == ["auto", "auto"])


def test_a_lease_that_is_given_back_is_over(rig: Rig) -> None:
    client = Helper(rig.path)
    client.hold(30)
    until(lambda: rig.fans.modes == ["held", "held"])
    client.release()
    until(lambda: rig.fans.modes == ["auto", "auto"])
    assert not client.connected


def test_a_lease_of_another_client_goes_on(rig: Rig) -> None:
    one, two = Helper(rig.path), Helper(rig.path)
    one.hold(30)
    two.hold(30)
    one.release()
    rig.advance(1)
    assert two.status().holders == 1
    assert rig.fans.modes == ["held", "held"]
    two.close()


@pytest.mark.parametrize("seconds", ["31", "9999", "1e9", "-1", "inf"])
def test_a_client_that_asks_for_ever_gets_nothing(rig: Rig, seconds: str) -> None:
    connection = rig.raw(f"fan/1 hold {seconds}\n".encode())
    assert not json.loads(connection.recv(4096))["ok"]
    rig.advance(0.1)
    assert rig.fans.holds == 0
    connection.close()


def test_renewals_that_come_too_fast_are_refused_and_giving_back_never_is(rig: Rig) -> None:
    client = Helper(rig.path)
    for _ in range(RATE_BURST):
        client.hold(10)
    with pytest.raises(HelperRefused, match="ten times") as found:
        client.hold(10)
    assert found.value.code == "too-often"
    client.release()
    rig.advance(0.1)
    until(lambda: rig.fans.modes == ["auto", "auto"])


def test_nonsense_ends_its_own_connection_and_nobody_elses(rig: Rig) -> None:
    client = Helper(rig.path)
    client.hold(30)
    connection = rig.raw(b"\x00\xff\n" * 50)
    replies = read_all(connection)
    assert [reply["error"] for reply in replies] == ["bad-line"] * MOST_BAD_LINES
    replies = read_all(rig.raw(b"x" * 1000))
    assert [reply["error"] for reply in replies] == ["too-long"]
    assert client.status().holders == 1
    client.close()


def test_a_client_that_hears_nothing_is_closed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_UNSENT", 2000)
    connection = rig.raw(b"")
    with pytest.raises(OSError, match=r"(?i)broken pipe|reset"):
        connection.sendall(b"fan/1 status\n" * 100_000)
    assert Helper(rig.path).status().state == "automatic"


def test_idle_connections_make_room_and_holders_stay(rig: Rig) -> None:
    holder = Helper(rig.path)
    holder.hold(30)
    crowd = [rig.raw(b"fan/1 status\n") for _ in range(MOST_CLIENTS + 4)]
    for connection in crowd[-3:]:
        assert json.loads(connection.recv(4096))["ok"]
    assert crowd[0].recv(65536)
    assert crowd[0].recv(4096) == b"", "the oldest idle one was closed"
    assert holder.status().holders == 1
    for connection in crowd:
        connection.close()
    holder.close()


def test_another_user_is_turned_away(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "peer_uid", lambda _: 4242)
    with pytest.raises(HelperRefused, match="user 4242") as found:
        Helper(rig.path).hold(10)
    assert found.value.code == "denied"
    monkeypatch.setattr(module, "peer_uid", lambda _: 0)
    Helper(rig.path).hold(10)


@pytest.mark.parametrize("held", [True, False])
def test_a_helper_that_is_told_to_end_gives_fans_back_first(rig: Rig, held: bool) -> None:
    client = Helper(rig.path)
    if held:
        client.hold(30)
        until(lambda: rig.fans.modes == ["held", "held"])
    rig.fans.lies = 1
    rig.stop()
    assert rig.ended
    assert rig.fans.modes == ["auto", "auto"]
    with pytest.raises(HelperGone):
        client.status()


def test_a_helper_whose_fans_do_not_come_back_ends_all_the_same_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.0)
    rig = Rig(folder, ScriptedFans(modes=["held"], refusals=10**6))
    rig.thread.start()
    rig.stop()
    assert rig.ended is False


def test_nobody_gets_a_lease_before_fans_are_back_from_another_life(folder: Path) -> None:
    rig = Rig(folder, ScriptedFans(modes=["held"], refusals=10**6))
    rig.thread.start()
    with pytest.raises(HelperRefused) as found:
        Helper(rig.path).hold(10)
    assert found.value.code == "starting"
    rig.fans.refusals = 0
    until(lambda: rig.keeper.ready)
    rig.stop()


def test_fans_that_cannot_be_read_end_every_lease(rig: Rig) -> None:
    client = Helper(rig.path)
    client.hold(30)
    until(lambda: rig.fans.modes == ["held", "held"])
    rig.fans.unreadable = 10**6
    for _ in range(4):
        rig.advance(1)
    until(lambda: rig.fans.modes == ["auto", "auto"])
    with pytest.raises(HelperRefused) as found:
        client.hold(10)
    assert found.value.code == "unreadable"
    assert client.status().fans is None
    rig.fans.unreadable = 0


def test_after_a_sleep_fans_are_looked_at_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Helper(rig.path)
    client.hold(10)
    until(lambda: rig.fans.modes == ["held", "held"])
    client.release()
    until(lambda: rig.fans.modes == ["auto", "auto"])
    rig.advance(1000)
    rig.advance(1000)
    rig.fans.modes = ["manual", "manual"]
    slept = module.clock.slept()
    monkeypatch.setattr(module.clock, "slept", lambda: slept + 3600)
    rig.advance(1)
    until(lambda: rig.fans.modes == ["auto", "auto"])


def test_only_one_helper_at_a_time(folder: Path) -> None:
    lock = claim(folder)
    with pytest.raises(CannotServe, match="another helper"):
        claim(folder)
    os.close(lock)
    os.close(claim(folder))


def test_the_sockets_folder_is_ours_alone(folder: Path) -> None:
    make_folder(folder / "new")
    assert (folder / "new").stat().st_mode & 0o777 == 0o755
    (folder / "new").chmod(0o777)
    with pytest.raises(CannotServe, match="not ours alone"):
        make_folder(folder / "new")
    (folder / "link").symlink_to(folder)
    with pytest.raises(CannotServe, match="not ours alone"):
        make_folder(folder / "link")


def test_the_socket_is_its_owners_alone(rig: Rig) -> None:
    assert rig.path.stat().st_mode & 0o777 == 0o600


def test_credentials_as_the_two_systems_give_them() -> None:
    xucred = bytes.fromhex("00000000f501000002000000") + bytes(64)
    assert read_xucred(xucred) == 501
    for bad in (xucred[:40], b"\x01" + xucred[1:]):
        with pytest.raises(OSError, match="credentials"):
            read_xucred(bad)
    ours = (7).to_bytes(4, "little") + (501).to_bytes(4, "little") + bytes(4)
    assert read_ucred(ours) == 501
