"""The helper as the one file that is installed, under an isolated interpreter, through the real calls into IOKit."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from mtplx_launchd.helper.archive import build_archive
from mtplxd.thermal.helper import Helper, HelperRefused
from support.fake_smc import M3, FakeSmc
from support.fand import Fand
from support.waiting import until

MOST_KIB = 40 * 1024


def hold(fand: Fand, smc: FakeSmc, seconds: float = 20) -> Helper:
    """Fans held by a client that lives in this process, and as long as somebody keeps what this returns."""
    client = Helper(fand.socket)
    client.hold(seconds)
    until(lambda: smc.held)
    return client


def test_fans_left_by_another_life_are_given_back_at_the_start(fand: Fand, smc: FakeSmc) -> None:
    smc.set_fan(0, mode=1, target=5800.0)
    fand.start()
    assert smc.automatic
    assert fand.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_fans_back_though_the_hardware_lies(
    fand: Fand, smc: FakeSmc, number: signal.Signals
) -> None:
    fand.start()
    client = hold(fand, smc)
    smc.set(lie_percent=60)
    assert fand.end(number) == 0
    assert smc.automatic
    client.close()
    assert "ended" in fand.log.read_text()


def test_a_killed_helper_leaves_fans_and_the_next_one_gives_them_back(fand: Fand, smc: FakeSmc) -> None:
    fand.start()
    client = hold(fand, smc)
    fand.kill()
    assert smc.held
    client.close()
    fand.start()
    assert smc.automatic
    hold(fand, smc).close()
    until(lambda: smc.automatic)


def test_a_client_that_is_killed_gives_fans_back(fand: Fand, smc: FakeSmc) -> None:
    fand.start()
    lines = "import socket,sys,time;s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1]);"
    lines += "s.sendall(b'fan/1 hold 30\\n');s.recv(99);print('held',flush=True);time.sleep(99)"
    client = subprocess.Popen([sys.executable, "-c", lines, str(fand.socket)], stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == b"held\n"
    until(lambda: smc.held)
    client.kill()
    until(lambda: smc.automatic)
    client.wait()
    client.stdout.close()


def test_a_lease_runs_out_on_the_real_clock(fand: Fand, smc: FakeSmc) -> None:
    fand.start()
    client = hold(fand, smc, 0.5)
    until(lambda: smc.automatic)
    client.close()


def test_a_locked_generation_is_held_and_given_back_through_the_process(fand: Fand, smc: FakeSmc) -> None:
    smc.set(generation=M3, unlock_ms=200, handback_ms=100)
    fand.start()
    client = hold(fand, smc)
    client.release()
    until(lambda: smc.automatic)
    until(lambda: smc.fan(0).mode == 3 or Helper(fand.socket).status() is None)
    assert Helper(fand.socket).status().state == "automatic"


def test_one_helper_at_a_time_and_a_dead_ones_socket_is_taken(fand: Fand) -> None:
    fand.start()
    second = subprocess.run(fand.command(), capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert second.stderr.startswith("error: mtplxd-fand cannot start: another helper runs")
    fand.kill()
    fand.start()
    assert fand.answers()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_it_is_small_and_imports_the_standard_library_alone(fand: Fand, smc: FakeSmc) -> None:
    fand.start()
    hold(fand, smc).close()
    assert fand.resident_kib() <= MOST_KIB


def test_it_runs_without_this_distribution(folder: Path) -> None:
    """-I and -S leave no path to anything that is installed."""
    file = folder / "fand"
    file.write_bytes(build_archive())
    code = f"import sys; sys.path.insert(0, {str(file)!r}); import fand.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()} - {"fand", "__main__"}
    assert loaded <= set(sys.stdlib_module_names) | {"__mp_main__"}


def test_it_is_python_3_9_and_imports_relatively() -> None:
    """What macOS brings along is 3.9."""
    names = set(sys.stdlib_module_names)
    with zipfile.ZipFile(BytesIO(build_archive())) as archive:
        for name in archive.namelist():
            tree = ast.parse(archive.read(name), name, feature_version=(3, 9))
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    assert {alias.name.partition(".")[0] for alias in node.names} <= names, name
                elif isinstance(node, ast.ImportFrom) and name != "__main__.py":
                    assert node.level == 1 or (node.module or "").partition(".")[0] in names, name


def test_the_same_modules_are_the_same_bytes() -> None:
    assert build_archive() == build_archive()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_cannot_even_open_the_socket(fand: Fand, smc: FakeSmc) -> None:
    fand.start()
    lines = "import os,socket,sys;os.setuid(65534);s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1])"
    fand.socket.parent.parent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-I", "-c", lines, str(fand.socket)], capture_output=True, text=True, check=False
    )
    assert "PermissionError" in done.stderr
    fand.socket.chmod(0o666)
    lines += ";print(s.recv(999).decode())"
    done = subprocess.run(
        [sys.executable, "-I", "-c", lines, str(fand.socket)], capture_output=True, text=True, check=False
    )
    assert "user 65534 may not hold fans" in done.stdout
    assert smc.get("manual_writes") == 0


def test_a_helper_without_hardware_lives_and_says_what_it_lacks(fand: Fand, smc: FakeSmc) -> None:
    smc.path.unlink()
    fand.spawn()
    until(fand.socket.exists)
    client = Helper(fand.socket)
    until(lambda: client.status().state == "unreadable")
    with pytest.raises(HelperRefused, match="AppleSMC"):
        client.hold(10)
    client.close()
