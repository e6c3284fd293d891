"""A real daemon: how it starts, who may not start beside it, and what it leaves."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from mtplx_client import Client
from mtplx_proto.v1 import system_pb2, system_pb2_grpc
from mtplxd import PROTOCOL
from support.daemon_process import DaemonProcess, clean_environment, running_daemon, short_folder

MODEL_LIBRARIES = ("mlx", "mlx_lm", "transformers", "torch")


@pytest.fixture(scope="module")
def served() -> Iterator[DaemonProcess]:
    """One that serves, with nothing in its home but what it made itself; for tests that leave it as it is."""
    with short_folder() as folder, running_daemon(folder / "home", "--memory-budget", "1G") as daemon:
        yield daemon


def status(socket: Path, timeout: float = 30) -> system_pb2.StatusReply:
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        return system_pb2_grpc.SystemStub(channel).Status(system_pb2.StatusRequest(), timeout=timeout)


def test_it_says_one_ready_line_and_serves_what_it_says(home: Path) -> None:
    with running_daemon(home) as daemon:
        assert daemon.ready_line == f"ready socket={daemon.socket} pid={daemon.pid}"
        reply = status(daemon.socket)
        assert (reply.pid, reply.state, reply.home) == (daemon.pid, "serving", str(home))
        code, out, err = daemon.stop()
    assert (code, out, err) == (0, "", "")


def test_nothing_it_needs_to_be_ready_imports_a_model_library() -> None:
    """What makes a start slow comes after the ready line, so importing the daemon must not pull it in."""
    script = "import mtplxd.daemon, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {name.split(".")[0] for name in loaded.stdout.split()} & set(MODEL_LIBRARIES)


def test_folders_and_files_are_the_owners_alone(served: DaemonProcess) -> None:
    home = served.home
    folders = [path for path in (home, *home.rglob("*")) if path.is_dir()]
    files = [path for path in home.rglob("*") if not path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    assert served.socket in files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_the_wide_umask_of_its_user_changes_nothing(home: Path) -> None:
    old = os.umask(0)
    try:
        with running_daemon(home) as daemon:
            assert stat.S_IMODE(daemon.socket.stat().st_mode) == 0o600
            assert stat.S_IMODE(home.stat().st_mode) == 0o700
    finally:
        os.umask(old)


@pytest.mark.parametrize("shared", ["home", "socket"])
def test_a_second_daemon_is_refused_and_the_first_serves_on(
    served: DaemonProcess, home: Path, shared: str
) -> None:
    if shared == "home":
        second = DaemonProcess(served.home, "--socket", str(home.parent / "other" / "d.sock"))
    else:
        second = DaemonProcess(home, "--socket", str(served.socket))
    code, _, err = second.start().wait()
    assert code == 3
    assert f"pid {served.pid}" in err
    assert str(served.socket) in err
    assert err.count("\n") == 1
    assert status(served.socket).pid == served.pid


def test_a_killed_daemon_is_followed_by_another_on_its_stale_socket(home: Path) -> None:
    with running_daemon(home) as first:
        first.kill()
        assert first.socket.exists()
    with running_daemon(home) as second:
        assert status(second.socket).pid == second.pid


def test_a_live_socket_of_something_else_is_not_taken(home: Path) -> None:
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); "
        "print('up', flush=True); sys.stdin.read()"
    )
    socket = home / "run" / "mtplxd.sock"
    socket.parent.mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    command = [sys.executable, "-c", script, str(socket)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        code, _, err = DaemonProcess(home).start().wait()
        assert code == 3
        assert f"pid {other.pid}" in err
        other.communicate(timeout=60)


def refused(home: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Exit code and the one line of a start that must fail."""
    code, out, err = DaemonProcess(home, *arguments, **environment).start().wait()
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return code, err


def test_a_socket_path_that_is_too_long_names_length_and_limit(home: Path) -> None:
    path = "/tmp/" + "x" * 99
    code, err = refused(home, "--socket", path)
    assert code == 2
    assert "104 bytes" in err
    assert "103" in err


def test_a_folder_open_to_others_is_refused(home: Path) -> None:
    folder = home.parent / "open"
    folder.mkdir()
    folder.chmod(0o755)
    code, err = refused(home, "--socket", str(folder / "d.sock"))
    assert code == 3
    assert "chmod 700" in err


def test_a_symlinked_folder_is_refused(home: Path) -> None:
    (home.parent / "real").mkdir(mode=0o700)
    (home.parent / "link").symlink_to(home.parent / "real")
    assert refused(home, "--socket", str(home.parent / "link" / "d.sock"))[0] == 3


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--memory-budget", "lots"), "memory-budget"),
        (("--drain-s", "soon"), "drain-s"),
        (("--bogus",), "--bogus"),
    ],
)
def test_a_bad_setting_names_itself(home: Path, arguments: tuple[str, ...], word: str) -> None:
    code, err = refused(home, *arguments)
    assert code == 2
    assert word in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_an_unknown_key_in_the_config_is_one_warning_and_shown(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('colour = "red"\n')
    with running_daemon(home) as daemon:
        assert any("colour" in reason for reason in status(daemon.socket).degraded)
        code, _, err = daemon.stop()
    assert code == 0
    assert err.count("\n") == 1
    assert "colour" in err


def test_an_explicit_budget_is_the_plan_and_its_source_is_shown(served: DaemonProcess) -> None:
    reply = status(served.socket)
    assert reply.memory.plan == 1 << 30
    assert ("memory_budget", "1G", "flag") in [(s.key, s.value, s.source) for s in reply.settings]


def test_the_blas_is_measured_once_it_serves(served: DaemonProcess) -> None:
    with grpc.insecure_channel(f"unix:{served.socket}") as channel:
        watch = system_pb2_grpc.SystemStub(channel).Watch(system_pb2.WatchRequest(interval_s=0.1), timeout=60)
        measured = next(reply.blas for reply in watch if reply.blas.gflops > 0)
        assert measured.name


def test_a_name_with_special_characters_is_a_socket_like_any_other(home: Path) -> None:
    socket = home.parent / "s p" / "100%41?#ü.sock"
    with running_daemon(home, "--socket", str(socket)) as daemon:
        assert socket.is_socket()
        with Client(socket=socket) as client:
            assert client.status().pid == daemon.pid
        assert daemon.stop()[0] == 0
        assert not socket.exists()


def test_anybody_may_probe_its_health_and_ask_what_it_serves(served: DaemonProcess) -> None:
    with grpc.insecure_channel(f"unix:{served.socket}") as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        listed = next(stub.ServerReflectionInfo(iter([asked]), timeout=30)).list_services_response
        names = {service.name for service in listed.service}
        assert {"mtplx.v1.Generation", "mtplx.v1.Models", "mtplx.v1.System", "mtplx.v1.Tuning"} < names


def test_a_client_of_another_protocol_is_told_which_side_to_update(served: DaemonProcess) -> None:
    with grpc.insecure_channel(f"unix:{served.socket}") as channel:
        metadata = (("mtplx-protocol", str(PROTOCOL + 1)), ("mtplx-version", "9.9.9"))
        with pytest.raises(grpc.RpcError) as refused:
            system_pb2_grpc.SystemStub(channel).Status(
                system_pb2.StatusRequest(), metadata=metadata, timeout=30
            )
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "update the daemon" in refused.value.details()


def test_a_starter_that_listens_to_nothing_does_not_end_it(home: Path) -> None:
    closed = f"exec {sys.executable} -m mtplxd >&- 2>&-"
    with subprocess.Popen(["/bin/sh", "-c", closed], env=clean_environment(home)) as process:
        with Client(socket=home / "run" / "mtplxd.sock") as client:
            assert client.wait_ready(60).pid == process.pid
            client.stop()
        assert process.wait(60) == 0


def test_help_and_version_need_no_home() -> None:
    environment = clean_environment(Path("/nonexistent/home"))
    for flag in ("--help", "--version"):
        done = subprocess.run(
            [sys.executable, "-m", "mtplxd", flag], env=environment, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_one_that_dies_of_a_bug_says_so_in_one_line_and_keeps_the_trace_in_its_log(home: Path) -> None:
    broken = "import mtplxd.daemon as d; d.Daemon = None; from mtplxd.__main__ import main; main([])"
    ended = subprocess.run(
        [sys.executable, "-c", broken],
        env=clean_environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    log = home / "logs" / "mtplxd.log"
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"error: the daemon died (TypeError): see {log}\n"
    assert "Traceback" in log.read_text()


def test_ctrl_c_is_a_stop_like_any_other(home: Path) -> None:
    with running_daemon(home) as daemon:
        daemon.signal(signal.SIGINT)
        assert daemon.wait() == (0, "", "")
        assert not daemon.socket.exists()
