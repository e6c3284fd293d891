"""The stand-in keeps launchd's and systemd's rules: without that, nothing that runs under it shows anything."""

from __future__ import annotations

import os
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from mtplx_launchd.plist import render_plist
from support.standin.rig import Rig, standing_in
from support.waiting import until

UID = os.getuid()
GUI, USER = f"gui/{UID}", f"user/{UID}"
STAYS = (
    "import signal, sys; signal.signal(15, signal.SIG_IGN); print('deaf', file=sys.stderr, flush=True);"
    " signal.sigwait({10})"
)
"""A job's program that SIGTERM does not end, once it says so."""


def written(rig: Rig, job, session: str = "Aqua") -> Path:
    rig.agents.mkdir(exist_ok=True)
    path = rig.agents / f"{job.label}.plist"
    path.write_bytes(render_plist(job, session))
    path.chmod(0o600)
    return path


def load(rig: Rig, job) -> None:
    assert rig.tool("launchctl", "bootstrap", GUI, str(written(rig, job))).code == 0
    until(rig.starts)


def test_a_job_has_its_own_environment_and_next_to_nothing_else(rig: Rig, make_job, home) -> None:
    load(rig, make_job("import os, sys; sys.stderr.write(repr(dict(os.environ)) + os.getcwd()); sys.exit(0)"))
    until(lambda: "}" in (home.logs / "mtplxd.err").read_text())
    said = (home.logs / "mtplxd.err").read_text()
    assert "'MARK': 'yes'" in said
    assert "PYTHONPATH" not in said
    assert str(home.root) in said


@pytest.mark.parametrize(("end", "comes_back"), [("sys.exit(0)", False), ("sys.exit(3)", True),
    ("os.kill(os.getpid(), 9)", True), ("os.kill(os.getpid(), 15)", True)])  # fmt: skip
def test_only_a_good_end_leaves_it_down(rig: Rig, make_job, end: str, comes_back: bool) -> None:
    job = make_job(f"import os, sys; {end}")
    load(rig, job)
    if comes_back:
        until(lambda: len(rig.starts()) > 1)
        return
    until(lambda: "state = not running" in rig.tool("launchctl", "print", f"{GUI}/{job.label}").out)
    assert len(rig.starts()) == 1


def test_starts_are_a_throttle_apart(rig: Rig, make_job) -> None:
    load(rig, make_job("raise SystemExit(1)"))
    until(lambda: len(rig.starts()) > 2)
    times = [start["at"] for start in rig.starts()]
    assert all(later - before >= 30 * 0.01 for before, later in pairwise(times))


def test_a_process_that_does_not_end_has_its_label_for_its_time(folder: Path, make_job, home) -> None:
    with standing_in(folder / "m") as rig:
        job = make_job(STAYS)
        load(rig, job)
        until(lambda: "deaf" in (home.logs / "mtplxd.err").read_text())
        assert rig.tool("launchctl", "bootout", f"{GUI}/{job.label}").code == 0
        assert "state = SIGTERMed" in rig.tool("launchctl", "print", f"{GUI}/{job.label}").out
        again = rig.tool("launchctl", "bootstrap", GUI, str(rig.agents / f"{job.label}.plist"))
        assert (again.code, again.err.splitlines()[0]) == (
            5,
            "Bootstrap failed: 5: Input/output error",
        )
        os.kill(
            rig.starts()[0]["pid"], signal.SIGKILL
        )  # it is still there, and nobody has to wait for its time


def test_a_process_that_does_not_end_is_killed_after_its_time(folder: Path, make_job, home) -> None:
    with standing_in(folder / "m", exit_factor=0.002) as rig:
        job = make_job(STAYS)
        load(rig, job)
        until(lambda: "deaf" in (home.logs / "mtplxd.err").read_text())
        pid = rig.starts()[0]["pid"]
        assert rig.tool("launchctl", "bootout", f"{GUI}/{job.label}").code == 0
        until(lambda: rig.tool("launchctl", "print", f"{GUI}/{job.label}").code == 113)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_launchctls_other_ends(rig: Rig, make_job) -> None:
    job = make_job()
    path = str(written(rig, job))
    target = f"{GUI}/{job.label}"
    missing = rig.tool("launchctl", "print", target)
    assert (missing.code, "Could not find service" in missing.err) == (113, True)
    assert rig.tool("launchctl", "bootout", target).code == 3
    assert rig.tool("launchctl", "kickstart", target).code == 113
    assert rig.tool("launchctl", "bootout", "--wait", target).code == 64
    assert rig.tool("launchctl", "unknown").code == 64
    assert rig.tool("launchctl", "bootstrap", USER, path).code == 134
    assert rig.tool("launchctl", "disable", target).code == 0
    assert rig.tool("launchctl", "bootstrap", GUI, path).code == 119
    rig.reboot()
    assert rig.tool("launchctl", "bootstrap", GUI, path).code == 125
    rig.login()
    assert rig.starts() == []  # disabled outlives a reboot
    assert rig.tool("launchctl", "enable", target).code == 0
    assert rig.tool("launchctl", "bootstrap", GUI, path).code == 0
    assert rig.tool("launchctl", "bootstrap", GUI, path).code == 5


def test_the_tools_are_programs(rig: Rig, make_job) -> None:
    load(rig, make_job())
    for words in (["print", GUI], ["print", f"{GUI}/none"], ["bootout", f"{GUI}/none"]):
        ran = subprocess.run([rig.folder / "launchctl", *words], capture_output=True, text=True, check=False)
        said = rig.tool("launchctl", *words)
        assert (ran.returncode, ran.stdout, ran.stderr) == (said.code, said.out, said.err)
    assert (
        subprocess.run(
            [rig.folder / "systemctl", "--user", "show"], capture_output=True, check=False
        ).returncode
        == 0
    )


def test_kickstart_k_goes_on_with_what_was_loaded(rig: Rig, make_job, home) -> None:
    load(rig, make_job("import sys, signal; print('old', file=sys.stderr, flush=True); signal.sigwait({15})"))
    job = make_job("import sys, signal; print('new', file=sys.stderr, flush=True); signal.sigwait({15})")
    written(rig, job)
    until(lambda: "old" in (home.logs / "mtplxd.err").read_text())
    assert rig.tool("launchctl", "kickstart", "-k", f"{GUI}/{job.label}").code == 0
    until(lambda: (home.logs / "mtplxd.err").read_text().count("old") == 2)


def test_a_session_that_ends_takes_its_processes_along(rig: Rig, make_job) -> None:
    load(rig, make_job())
    [start] = rig.starts()
    rig.logout()
    with pytest.raises(ProcessLookupError):
        os.kill(start["pid"], 0)
    rig.login()
    until(lambda: len(rig.starts()) == 2)


def test_a_key_that_is_not_honoured_is_refused(rig: Rig, make_job) -> None:
    path = written(rig, make_job())
    path.write_bytes(path.read_bytes().replace(b"<key>Umask</key>", b"<key>Umaks</key>"))
    assert rig.tool("launchctl", "bootstrap", GUI, str(path)).code == 5


def test_systemctls_ends(rig: Rig) -> None:
    def said(*words: str) -> tuple[int, str]:
        done = rig.tool("systemctl", "--user", *words)
        return done.code, done.err

    assert said("start", "x.service") == (5, "Failed to start x.service: Unit x.service not found.\n")
    assert said("enable", "x.service")[0] == 1
    assert said("stop", "x.service")[0] == 5
    assert rig.tool("systemctl", "--user", "show", "x.service").out.startswith("LoadState=not-found\n")
    rig.logout()
    assert said("show") == (1, "Failed to connect to bus: No medium found\n")


def test_the_supervisor_ends_its_processes_with_itself(folder: Path, make_job) -> None:
    with standing_in(folder / "m") as rig:
        load(rig, make_job())
        pid = rig.starts()[0]["pid"]
        os.kill(pid, signal.SIGCONT)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
