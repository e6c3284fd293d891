"""The real daemon as a job: it starts at login, comes back after kill -9, goes with an update and a logout, and what it
keeps outlives a reboot.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.cli import main
from mtplx_client.errors import MtplxError
from mtplxd.paths import Home
from mtplxd.rpc.sockets import Claim
from support.standin.rig import Rig, standing_in
from support.waiting import until

Mtplx = Callable[..., tuple[int, Any]]


@pytest.fixture
def system(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "launchd")


@pytest.fixture
def rig(folder: Path) -> Iterator[Rig]:
    with standing_in(folder / "machine", factor=0.01, exit_factor=0.3) as machine:
        yield machine


@pytest.fixture
def mtplx(
    rig: Rig, system: str, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Mtplx:
    """The command line in this process, with the tools of the stand-in; the exit code and the JSON it wrote."""
    monkeypatch.setattr("mtplx_launchd.service.this_backend", lambda: rig.backend(system))
    monkeypatch.setenv("MTPLXD_HOME", str(home.root))
    monkeypatch.delenv("MTPLXD_SOCKET", raising=False)

    def run(*words: str) -> tuple[int, Any]:
        code = main([*words, "--json"])
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


def pid_of(home: Home) -> int | None:
    """The daemon that answers, None where none does."""
    try:
        with Client(home.socket, timeout=20) as client:
            return client.status().pid
    except MtplxError:
        return None


@pytest.mark.parametrize("system", ["launchd", "systemd"], indirect=True)
def test_login_crash_and_a_good_end(rig: Rig, mtplx: Mtplx, home: Home, system: str) -> None:
    code, said = mtplx("service", "install")
    assert (code, said["state"], said["changed"]) == (0, "running", True)
    first = said["pid"]
    assert first == pid_of(home)
    os.kill(first, signal.SIGKILL)
    until(lambda: pid_of(home) not in (None, first))
    code, said = mtplx("service", "status")
    assert said["last_exit"] == ("Killed: 9" if system == "launchd" else "signal 9")
    assert "died while it served" in (home.logs / "last-failure.log").read_text()
    code, _ = mtplx("stop")  # an end with 0 means: leave it down
    assert code == 0
    until(lambda: mtplx("service", "status")[1]["state"] == "waiting" if system == "launchd" else True)
    assert pid_of(home) is None
    assert len(rig.starts()) == 2


def test_an_update_reads_the_job_anew(
    rig: Rig, mtplx: Mtplx, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = mtplx("service", "install")[1]["pid"]
    monkeypatch.setenv("MTPLXD_MAX_ROWS", "3")
    code, said = mtplx("service", "install")
    assert (code, said["changed"]) == (0, True)
    assert said["pid"] not in (None, first)
    with Client(home.socket) as client:
        shown = {setting.key: (setting.value, setting.source) for setting in client.status().settings}
    assert shown["max_rows"] == ("3", "env")
    assert len(rig.starts()) == 2


def test_a_reboot_keeps_what_was_kept_and_no_process(rig: Rig, mtplx: Mtplx, home: Home) -> None:
    first = mtplx("service", "install")[1]["pid"]
    (home.packs / "kept").mkdir()
    rig.reboot()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert pid_of(home) is None
    rig.login()
    until(lambda: pid_of(home) is not None)
    assert (home.packs / "kept").is_dir()
    rig.logout()
    assert pid_of(home) is None
    rig.login()
    code, said = mtplx("service", "uninstall", "--purge")
    assert code == 0
    assert not home.root.exists()
    assert str(home.packs) in said["removed"]


def test_a_daemon_of_somebody_else_on_the_socket_is_named(mtplx: Mtplx, home: Home) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(home.socket))
        other.listen()
        code, said = mtplx("service", "install")
    assert code == 3
    assert "not the service's" in said["error"]["message"]


def test_a_start_that_fails_says_what_the_daemon_said(mtplx: Mtplx, home: Home) -> None:
    def message() -> str:
        code, said = mtplx("service", "install", "--timeout", "0.3")
        assert code == 4
        assert "mtplx service logs" in said["error"]["fix"]
        return str(said["error"]["message"])

    held = Claim(home.root / ".daemon.lock", home.socket, "this home")
    until(lambda: "another daemon holds this home" in message())
    held.release()
    assert mtplx("service", "logs")[1]["final"]


def test_what_is_not_installed_has_a_status_all_the_same(mtplx: Mtplx, home: Home) -> None:
    code, said = mtplx("service", "status")
    assert code == 0
    assert {"label", "plist", "state", "pid", "last_exit"} <= set(said)
    assert (said["state"], said["pid"], said["last_exit"]) == ("not installed", None, None)
    assert mtplx("service", "start")[0] == 3
    code, said = mtplx("service", "uninstall")
    assert (code, said["changed"], said["home"]) == (0, False, str(home.root))


def test_a_key_in_the_environment_is_left_out_with_a_word(
    mtplx: Mtplx, home: Home, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")
    assert mtplx("service", "install")[0] == 0
    [plist] = rig.agents.glob("*.plist")
    assert b"secret" not in plist.read_bytes()
    assert plist.stat().st_mode & 0o077 == 0
    until(lambda: pid_of(home) is not None)
