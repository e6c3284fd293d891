"""A daemon of another machine, over a real sshd on loopback: the same answers, exit codes and JSON as at home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplx_client import Client
from mtplx_client.errors import InvalidArgument
from mtplx_client.remote import Link, Target, forwarded, parse_target
from support.daemon_process import running_daemon, short_folder
from support.fake_daemon import FakeDaemon
from support.sshd import Sshd, find_sshd, serving_ssh

needs_sshd = pytest.mark.skipif(find_sshd() is None, reason="no sshd on this machine (openssh-server)")


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with short_folder() as folder, serving_ssh(folder, {"MTPLXD_HOME": str(folder / "far")}) as server:
        yield server


@pytest.fixture
def far(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PATH", f"{sshd.bin}{os.pathsep}{os.environ['PATH']}")
    return f"ssh://{sshd.host}"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("ssh://host", Target("host")),
        ("ssh://me@host", Target("host", "me")),
        ("ssh://me@host:2222/run/d.sock", Target("host", "me", 2222, "/run/d.sock")),
        ("ssh://host/", Target("host")),
        ("ssh://[::1]/a%20b", Target("::1", path="/a b")),
    ],
)
def test_addresses(url: str, target: Target) -> None:
    assert parse_target(url) == target


@pytest.mark.parametrize(
    "url",
    ["ssh://", "ssh:///path", "ssh://-oProxyCommand=x", "ssh://-x@host", "ssh://me:pw@host", "ssh://h:99999",
     "ssh://h/a:b", "ssh://h/a?b", "ssh://h#x", "ssh://h/%0a"],
)  # fmt: skip
def test_what_is_no_address_is_refused_before_anything_runs(url: str, mtplx) -> None:
    with pytest.raises(InvalidArgument):
        parse_target(url)
    result = mtplx("status", "--socket", url, "--json")
    assert (result.code, result.document["error"]["code"]) == (2, "INVALID_ARGUMENT")


@needs_sshd
def test_status_and_an_answer_come_as_from_here(mtplx, daemon: FakeDaemon, far: str) -> None:
    address = f"{far}{daemon.socket}"
    assert mtplx("status", "--socket", address, "--json").document == mtplx("status", "--json").document
    there = mtplx("generate", "Name three rivers.", "--socket", address)
    assert there.out == mtplx("generate", "Name three rivers.").out
    assert there.code == 0


@needs_sshd
def test_without_a_path_the_other_sides_settings_choose_and_stop_waits_for_its_end(
    mtplx, far: str, sshd: Sshd
) -> None:
    home = sshd.bin.parent / "far"
    with running_daemon(home) as process:
        ready = mtplx("wait-ready", "--socket", far, "--json").document
        assert (ready["pid"], ready["socket"]) == (process.pid, far)
        code = mtplx("stop", "--socket", far, "--json").code
        assert code == 0
        assert process.wait()[0] == 0
    missing = mtplx("status", "--socket", far, "--json")
    assert (missing.code, missing.document["error"]["code"]) == (4, "UNAVAILABLE")
    assert str(home / "run" / "mtplxd.sock") in missing.document["error"]["message"]


@needs_sshd
def test_a_stale_socket_is_no_daemon(mtplx, daemon: FakeDaemon, far: str) -> None:
    daemon.stop()
    result = mtplx("status", "--socket", f"{far}{daemon.socket}", "--json")
    assert (result.code, "no daemon answers" in result.document["error"]["message"]) == (4, True)


@needs_sshd
def test_a_machine_that_does_not_let_us_in_is_told_in_one_line(mtplx, far: str) -> None:
    for address in (far.replace("//", "//nobody-at-all@"), "ssh://127.0.0.1:9"):
        result = mtplx("status", "--socket", address, "--json")
        assert (result.code, result.document["error"]["code"]) == (4, "UNAVAILABLE")
        assert result.err.count("\n") == 1
        assert "ssh" in result.document["error"]["fix"]


@needs_sshd
def test_nothing_is_left_of_the_way(
    mtplx, daemon: FakeDaemon, far: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with short_folder() as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        assert mtplx("status", "--socket", f"{far}{daemon.socket}").code == 0
        assert list(folder.iterdir()) == []
        with forwarded(f"{far}{daemon.socket}") as socket:
            assert socket.parent.stat().st_mode & 0o077 == 0
            with Client(socket) as client:
                assert client.status().pid == 4321
        assert list(folder.iterdir()) == []


@needs_sshd
def test_ssh_ends_with_a_client_that_is_killed(daemon: FakeDaemon, far: str) -> None:
    script = (
        "import sys; from mtplx_client.remote import Link; link = Link(sys.argv[1]); "
        "print(link._process.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, f"{far}{daemon.socket}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        ssh = int(client.stdout.readline())
        os.kill(client.pid, signal.SIGKILL)
        client.wait()
    while _runs(ssh):
        pass


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@needs_sshd
def test_ctrl_c_leaves_the_way_open(daemon: FakeDaemon, far: str) -> None:
    link = Link(f"{far}{daemon.socket}")
    try:
        link._process.send_signal(signal.SIGINT)
        with Client(link.socket) as client:
            assert client.status().pid == 4321
        assert link.is_alive(os.getpid())
        assert not link.is_alive(2**22 + 1)
    finally:
        link.close()


@pytest.mark.parametrize(
    "words", [["logs"], ["du"], ["doctor"], ["config", "get"], ["service", "status"], ["quickstart"]]
)
def test_what_works_on_this_machines_files_says_so(mtplx, words: list[str]) -> None:
    result = mtplx(*words, "--socket", "ssh://far", "--json")
    assert result.code == 2
    assert json.loads(result.out)["error"]["fix"].endswith("on that machine")


def test_an_address_is_no_socket_for_a_daemon_or_a_setting(mtplx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLXD_SOCKET", "ssh://far")
    result = mtplx("status")
    assert result.code == 2
    assert "MTPLXD_SOCKET" in result.err


def test_without_ssh_that_is_said(mtplx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = mtplx("status", "--socket", "ssh://far")
    assert result.code == 3
    assert "OpenSSH" in result.err
