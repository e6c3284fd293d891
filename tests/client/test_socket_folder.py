"""Before it connects, a client looks at the socket's folder: owner, mode, no symlink."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mtplx_client import Client
from mtplx_client.errors import FailedPrecondition, InvalidArgument
from support.fake_daemon import FakeDaemon


def test_a_folder_open_to_others_is_refused_with_the_way_to_close_it(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.socket.parent.chmod(0o750)
    with pytest.raises(FailedPrecondition, match=r"open to other users.*chmod 700"):
        client.status()
    assert daemon.asked == []


def test_nobody_is_told_to_close_a_folder_that_all_share(daemon: FakeDaemon) -> None:
    daemon.socket.parent.chmod(0o1777)
    with pytest.raises(FailedPrecondition, match=r"open to other users.*choose another") as caught:
        Client(daemon.socket).status()
    assert "chmod" not in str(caught.value)


def test_a_folder_that_is_a_symlink_is_refused(daemon: FakeDaemon, tmp_path: Path) -> None:
    link = tmp_path / "l"
    link.symlink_to(daemon.socket.parent)
    with Client(link / daemon.socket.name) as client, pytest.raises(FailedPrecondition, match="symlink"):
        client.status()
    assert daemon.asked == []


def test_a_socket_that_is_a_symlink_is_refused(daemon: FakeDaemon) -> None:
    link = daemon.socket.with_name("link")
    link.symlink_to(daemon.socket)
    with Client(link) as client, pytest.raises(FailedPrecondition, match="symlink or no socket"):
        client.status()


def test_a_plain_file_is_refused(daemon: FakeDaemon) -> None:
    file = daemon.socket.with_name("file")
    file.touch()
    with Client(file) as client, pytest.raises(FailedPrecondition, match="no socket"):
        client.status()


def test_a_folder_of_another_user_is_refused(
    client: Client, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(FailedPrecondition, match="folder belongs to another user"):
        client.status()
    assert daemon.asked == []


def test_the_folder_is_looked_at_again_before_every_call(client: Client, daemon: FakeDaemon) -> None:
    client.status()
    daemon.socket.parent.chmod(0o755)
    with pytest.raises(FailedPrecondition):
        client.status()


def test_a_path_too_long_for_a_socket_is_refused_early() -> None:
    with pytest.raises(InvalidArgument, match=r"too long \(104 bytes\).*103"):
        Client("/" + "x" * 103)
    Client("/" + "x" * 102).close()


def test_a_relative_path_means_this_folder(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(daemon.socket.parent)
    with Client(daemon.socket.name) as client:
        assert client.status().pid == 4321


def test_the_home_chooses_the_socket(monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon) -> None:
    home = daemon.socket.parent
    (home / "run").mkdir(mode=0o700)
    daemon.stop()
    daemon.socket = home / "run" / "mtplxd.sock"
    daemon.start()
    monkeypatch.delenv("MTPLXD_SOCKET", raising=False)
    with Client(home=home) as client:
        assert client.status().pid == 4321
    monkeypatch.setenv("MTPLXD_HOME", str(home))
    with Client() as client:
        assert client.status().pid == 4321
