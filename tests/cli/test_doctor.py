"""The doctor: works without a daemon and without mlx, and says what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mtplx_client.doctor import verdicts
from mtplx_client.doctor.probes import Probe, probe
from support.fake_daemon import FakeDaemon
from support.without_mlx import environment_without_mlx

MAC = {"chip": "Apple M4", "arch": "arm64", "os": "macOS 15.1", "macos": "15.1", "rosetta": False}
GIB = 1 << 30


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def by_name(document: dict) -> dict[str, dict]:
    assert all(set(check) == {"name", "ok", "detail", "fix"} for check in document["checks"])
    return {check["name"]: check for check in document["checks"]}


def test_all_is_looked_at_and_the_running_daemon_named(mtplx) -> None:
    result = mtplx("doctor", "--json")
    checks = by_name(result.document)
    assert set(checks) >= {
        "python", "interpreter", "machine", "mlx", "settings", "disk", "store", "memory", "socket", "daemon",
        "versions", "permissions", "power", "service", "starts", "packs", "sessions", "hub",
    }  # fmt: skip
    assert checks["daemon"]["ok"]
    assert "pid 4321" in checks["daemon"]["detail"]
    assert result.code == (0 if all(check["ok"] for check in checks.values()) else 1)


def test_no_daemon_is_not_wrong(mtplx, daemon: FakeDaemon) -> None:
    daemon.stop()
    check = by_name(mtplx("doctor", "--json").document)["daemon"]
    assert check["ok"]
    assert "mtplx quickstart" in check["detail"]


def test_a_daemon_of_another_version_is_wrong(mtplx, daemon: FakeDaemon) -> None:
    daemon.status.version = "0.0.9"
    result = mtplx("doctor", "--json")
    assert result.code == 1
    assert not by_name(result.document)["daemon"]["ok"]


def test_an_open_socket_folder_is_wrong_and_told_how_to_close(mtplx, daemon: FakeDaemon) -> None:
    daemon.socket.parent.chmod(0o755)
    result = mtplx("doctor")
    assert result.code == 1
    assert "WRONG socket" in result.out
    assert f"chmod 700 {daemon.socket.parent}" in result.out


def test_a_store_that_others_may_read_is_wrong(mtplx, home: Path) -> None:
    (home / "store").mkdir(mode=0o700)
    (home / "store").chmod(0o755)
    check = by_name(mtplx("doctor", "--json").document)["store"]
    assert not check["ok"]
    assert "others may read it" in check["detail"]


@pytest.mark.parametrize(
    ("mode", "free", "ok", "words"),
    [
        ("on", 12, True, "on, /s, 12.0 GiB free, stops below 10.0"),
        ("write-only", 10, True, "write-only, /s, 10.0 GiB free"),
        ("on", 9, False, "9.0 GiB free"),
        ("off", 9, True, "off: prompts are kept in memory alone"),
    ],
)
def test_a_store_needs_room_above_its_floor(mode: str, free: int, ok: bool, words: str) -> None:
    check = verdicts.judge_store(mode, "/s", free * GIB, 10 * GIB, ())
    assert (check.ok, check.detail.startswith(words) or words in check.detail) == (ok, True)


def test_a_bad_setting_is_wrong_and_named(mtplx, home: Path) -> None:
    (home / "config.toml").write_text('keep_alive = "soon"\n')
    result = mtplx("doctor", "--json")
    assert result.code == 1
    assert "keep_alive" in by_name(result.document)["settings"]["detail"]


def test_the_doctor_works_where_mlx_cannot_be_imported(
    environment: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.stop()
    child = subprocess.run(
        [sys.executable, "-m", "mtplx_client", "doctor", "--json"],
        env={**os.environ, **environment, **environment_without_mlx(**environment)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    checks = by_name(json.loads(child.stdout))
    assert child.returncode == 1
    assert child.stderr == ""
    assert not checks["mlx"]["ok"]
    assert "mlx is blocked for this test" in checks["mlx"]["detail"]
    assert checks["mlx"]["fix"]
    assert all(check["ok"] for name, check in checks.items() if name not in ("mlx", "blas"))


def test_a_probe_that_dies_is_a_fact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell = tmp_path / "python"
    shell.write_text("#!/bin/sh\nkill -9 $$\n")
    shell.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(shell))
    assert probe("machine") == Probe(error="exit status -9")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    assert "gone" in probe("machine").error


@pytest.mark.parametrize(
    ("change", "ok", "said"),
    [
        ({}, True, ""),
        ({"rosetta": True}, False, "arm64 Python"),
        ({"arch": "x86_64"}, False, "Apple silicon"),
        ({"macos": "13.6", "os": "macOS 13.6"}, False, "macOS 14"),
        ({"macos": "14.0"}, True, ""),
        ({"macos": "", "arch": "x86_64"}, True, ""),
    ],
    ids=["fine", "rosetta", "intel", "too old", "just new enough", "linux"],
)
def test_which_machines_will_do(change: dict, ok: bool, said: str) -> None:
    check = verdicts.judge_machine(Probe({**MAC, **change}))
    assert check.ok == ok
    assert said in check.fix


def test_which_pythons_will_do() -> None:
    assert not verdicts.judge_python((3, 10)).ok
    assert verdicts.judge_python((3, 11)).ok


def test_the_reference_blas_is_wrong() -> None:
    assert not verdicts.judge_blas(Probe({"name": "reference", "path": ""})).ok
    assert verdicts.judge_blas(Probe({"name": "OpenBLAS 0.3", "path": "/l.so"})).ok
    assert not verdicts.judge_blas(Probe(error="cannot load")).ok


def test_space_is_compared_with_what_is_needed() -> None:
    assert verdicts.judge_space("disk", 2 * GIB, 2 * GIB, "here", "free some").ok
    short = verdicts.judge_space("disk", 2 * GIB - 1, 2 * GIB, "here", "free some")
    assert (short.ok, short.detail, short.fix) == (False, "2.0 GiB free here, 2.0 GiB needed", "free some")
    assert verdicts.needed_memory(GIB, 0, widened=True) == 2 * GIB + verdicts.SPARE_MEMORY
    assert verdicts.needed_memory(GIB, 0, widened=False) == GIB + verdicts.SPARE_MEMORY


@pytest.mark.parametrize(
    ("exists", "script", "said"),
    [
        (False, None, "is gone"),
        (True, None, "no mtplxd"),
        (
            True,
            {"path": "/v/mtplxd", "interpreter": "/old", "interpreter_exists": False},
            "/old, which is gone",
        ),
    ],
)
def test_a_broken_environment_is_found(exists: bool, script: dict | None, said: str) -> None:
    check = verdicts.judge_interpreter("/v/python", exists, script)
    assert not check.ok
    assert said in check.detail


@pytest.mark.parametrize("text", ['keep_alive = "soon"\n', "keep_alive\n"])
def test_the_other_checks_go_on_past_a_bad_config_and_its_fix_is_told_once(
    mtplx, home: Path, text: str
) -> None:
    (home / "config.toml").write_text(text)
    checks = by_name(mtplx("doctor", "--json").document)
    assert {"settings", "disk", "memory", "socket", "daemon"} <= set(checks)
    assert checks["settings"]["fix"]
    assert checks["settings"]["fix"] not in checks["settings"]["detail"]
