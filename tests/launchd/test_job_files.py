"""What is written for launchd and systemd: every key that matters, whatever the paths look like."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from mtplx_launchd.job import LABEL, PATH, describe_job, job_label
from mtplx_launchd.plist import AQUA, BACKGROUND, read_arguments, render_plist
from mtplx_launchd.unit import read_unit_arguments, render_unit
from mtplxd.config import resolve_settings
from mtplxd.errors import InvalidArgument
from mtplxd.paths import Home

STRANGE = Path('/tmp/a & <b> "c" %d $e')


def job(home: Home, env: dict[str, str] | None = None, **flags: object):
    env = env or {}
    return describe_job(home, resolve_settings(home, flags, env), "/opt/py/bin/python", env)


def test_the_agent_says_what_launchd_must_know(folder: Path) -> None:
    home = Home(folder)
    found = plistlib.loads(render_plist(job(home), AQUA))
    assert found["ProcessType"] == "Interactive"
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert (found["ThrottleInterval"], found["ExitTimeOut"]) == (30, 90)
    assert found["RunAtLoad"] is True
    assert found["SoftResourceLimits"]["NumberOfFiles"] >= 8192
    assert found["StandardErrorPath"] == str(home.logs / "mtplxd.err")
    assert found["LimitLoadToSessionType"] == "Aqua"
    assert not {"StandardOutPath", "Disabled", "LowPriorityIO", "Nice"} & set(found)
    assert found["ProgramArguments"][0].startswith("/")
    assert found["EnvironmentVariables"] == {"PATH": PATH}


def test_the_session_type_goes_with_the_domain_so_that_no_login_starts_two(folder: Path) -> None:
    found = plistlib.loads(render_plist(job(Home(folder)), BACKGROUND))
    assert found["LimitLoadToSessionType"] == "Background"


def test_the_label_is_the_files_name_and_one_a_home(folder: Path) -> None:
    assert job_label(Home(Path.home() / ".mtplxd")) == LABEL
    assert job_label(Home(folder)) != job_label(Home(folder / "other"))
    assert job_label(Home(folder)).startswith(f"{LABEL}.")


def test_another_version_is_another_file(folder: Path) -> None:
    now = job(Home(folder))
    later = replace(now, version="9.9.9")
    assert render_plist(now, AQUA) != render_plist(later, AQUA)
    assert plistlib.loads(render_plist(now, AQUA)) == plistlib.loads(render_plist(later, AQUA))
    assert render_unit(now) != render_unit(later)


def test_what_a_shell_says_of_the_daemon_and_the_hub_is_written_down_but_no_key(folder: Path) -> None:
    env = {
        "MTPLXD_KEEP_ALIVE": "10m", "HF_HOME": "/hub", "HF_TOKEN": "hf_secret", "HTTPS_PROXY": "http://me:pw@proxy",
        "PYTHONPATH": "/x", "MTPLXD_HOME": "/other", "EDITOR": "vi",
    }  # fmt: skip
    found = job(Home(folder), env)
    assert found.environment == {"PATH": PATH, "MTPLXD_KEEP_ALIVE": "10m", "HF_HOME": "/hub"}
    assert set(found.left_out) == {"HF_TOKEN", "HTTPS_PROXY"}
    assert b"secret" not in render_plist(found, AQUA)
    assert found.arguments[-2:] == ("--home", str(folder))


def test_a_socket_that_was_chosen_stands_on_the_command_line(folder: Path) -> None:
    assert job(Home(folder), socket="/tmp/x/s.sock").arguments[-2:] == ("--socket", "/tmp/x/s.sock")
    assert job(Home(folder), {"MTPLXD_SOCKET": "/tmp/y/s.sock"}).arguments[-1] == "/tmp/y/s.sock"


def test_a_long_drain_is_not_cut_short(folder: Path) -> None:
    assert job(Home(folder), drain_s="300").exit_s == 360
    assert plistlib.loads(render_plist(job(Home(folder), drain_s="300"), AQUA))["ExitTimeOut"] == 360


def test_strange_paths_come_back_whole() -> None:
    found = replace(job(Home(STRANGE)), environment={"A": str(STRANGE)})
    plist = render_plist(found, AQUA)
    assert read_arguments(plist) == list(found.arguments)
    assert plistlib.loads(plist)["EnvironmentVariables"] == {"A": str(STRANGE)}
    assert read_unit_arguments(render_unit(found)) == list(found.arguments)
    assert read_arguments(b"no plist") == read_unit_arguments(b"no unit") == []


def test_a_unit_takes_no_line_break() -> None:
    with pytest.raises(InvalidArgument, match="control character"):
        render_unit(job(Home(Path("/tmp/a\nExecStart=/bin/evil"))))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
@pytest.mark.parametrize("name", ["plain", "with space", "per%cent", "dol$lar", 'quo"te'])
def test_systemd_finds_nothing_wrong_with_the_unit(folder: Path, name: str) -> None:
    home = Home(folder / name)
    home.create()
    found = replace(job(home, {"HF_HOME": str(home.root)}), arguments=("/bin/true", str(home.root)))
    unit = folder / "mtplxd.service"
    unit.write_bytes(render_unit(found))
    said = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_would_find_a_wrong_key(folder: Path) -> None:
    unit = folder / "mtplxd.service"
    unit.write_bytes(render_unit(job(Home(folder))).replace(b"Restart=", b"Restrat="))
    said = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "Restrat" in said.stderr
