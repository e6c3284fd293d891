"""The verbs of the service under both systems: idempotent, never disabled, and read anew when the file changed."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mtplx_launchd.launchd import Launchd
from mtplx_launchd.purge import purge
from mtplx_launchd.service import NOT_INSTALLED, STOPPED, Service, this_backend
from mtplx_launchd.systemd import Systemd
from mtplxd.errors import FailedPrecondition, Unavailable
from mtplxd.paths import Home
from support.standin.rig import Rig
from support.waiting import until

SYSTEMS = ("launchd", "systemd")


@pytest.fixture(autouse=True)
def _tools_without_their_processes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("launchd", "systemd"):
        monkeypatch.setattr(f"mtplx_launchd.{module}.run_tool", rig.run_tool)


@pytest.fixture(params=SYSTEMS)
def service(request: pytest.FixtureRequest, rig: Rig, home: Home) -> Service:
    return Service(home, rig.backend(request.param))


def test_installing_twice_changes_nothing_the_second_time(service: Service, rig: Rig, make_job) -> None:
    assert service.look().state == NOT_INSTALLED
    assert service.install(make_job())
    until(lambda: service.look().state == "running")
    first = service.look()
    assert first.pid == rig.starts()[0]["pid"]
    assert first.interpreter == sys.executable
    assert not service.install(make_job())
    assert service.look() == first
    assert len(rig.starts()) == 1


def test_an_update_reads_the_file_anew(service: Service, rig: Rig, make_job) -> None:
    service.install(make_job())
    until(lambda: service.look().pid)
    before = service.look().pid
    assert service.install(replace(make_job(), version="9.9.9"))
    until(lambda: service.look().pid not in (None, before))
    assert len(rig.starts()) == 2


def test_a_file_that_was_edited_is_said_and_read_anew_by_start(service: Service, rig: Rig, make_job) -> None:
    service.install(make_job())
    until(lambda: service.look().pid)
    service.path.write_bytes(service.path.read_bytes().replace(b"yes", b"changed"))
    assert service.look().edited
    assert service.start()
    until(lambda: len(rig.starts()) == 2)
    assert not service.look().edited
    assert not service.start()


def test_a_stopped_job_is_back_at_the_next_login(service: Service, rig: Rig, make_job) -> None:
    service.install(make_job())
    until(lambda: service.look().pid)
    assert service.stop()
    assert service.look().state == STOPPED
    assert not service.stop()
    rig.logout()
    rig.login()
    until(lambda: service.look().state == "running")


def test_restart_is_another_process(service: Service, rig: Rig, make_job) -> None:
    service.install(make_job())
    until(lambda: service.look().pid)
    service.restart()
    until(lambda: len({start["pid"] for start in rig.starts()}) == 2)


def test_a_job_that_ended_well_stays_down_until_it_is_started(service: Service, make_job, home: Home) -> None:
    stay = home.root / "stay"
    lines = f"import os, signal; os.path.exists({str(stay)!r}) and signal.sigwait({{15}})"
    service.install(make_job(lines))
    until(lambda: service.look().last_exit == "0")
    assert service.look().pid is None
    stay.touch()
    assert service.start()
    until(lambda: service.look().state == "running")


def test_how_it_ended_is_told(service: Service, make_job) -> None:
    service.install(make_job("raise SystemExit(3)"))
    until(lambda: service.look().last_exit == "3")


def test_uninstalling_leaves_no_trace_but_what_was_made(
    service: Service, rig: Rig, make_job, home: Home
) -> None:
    kept = home.packs / "mine"
    kept.mkdir()
    service.install(make_job())
    until(lambda: service.look().pid)
    pid = service.look().pid
    assert service.uninstall()
    assert not service.path.exists()
    assert service.look().state == NOT_INSTALLED
    with pytest.raises(ProcessLookupError):
        os.kill(pid or 0, 0)
    assert kept.is_dir()
    assert not service.uninstall()
    rig.logout()
    rig.login()
    assert service.look().state == NOT_INSTALLED


def test_what_is_not_installed_cannot_be_started(service: Service) -> None:
    for verb in (service.start, service.stop, service.restart):
        with pytest.raises(FailedPrecondition, match="mtplx service install"):
            verb()


def test_an_interpreter_that_is_gone_is_refused_before_anything_is_written(
    service: Service, make_job
) -> None:
    with pytest.raises(FailedPrecondition, match="/gone/python"):
        service.install(replace(make_job(), arguments=("/gone/python",)))
    assert not service.path.exists()


def test_launchd_where_nobody_is_at_the_screen(rig: Rig, make_job, home: Home) -> None:
    rig.reboot()
    rig.ssh()
    service = Service(home, rig.launchd)
    service.install(make_job())
    until(lambda: service.look().pid)
    assert service.look().where == f"user/{os.getuid()}"
    assert "nobody is logged in at the screen" in service.why_there()
    rig.login()
    assert service.install(make_job())
    until(lambda: service.look().pid)
    assert service.look().where == f"gui/{os.getuid()}"
    assert rig.tool("launchctl", "print", f"user/{os.getuid()}/{service.label}").code == 113


def test_a_job_that_somebody_disabled_is_enabled_and_never_by_us(rig: Rig, make_job, home: Home) -> None:
    service = Service(home, rig.launchd)
    rig.tool("launchctl", "disable", f"gui/{os.getuid()}/{service.label}")
    service.install(make_job())
    service.stop()
    service.start()
    service.uninstall()
    assert service.label not in rig.tool("launchctl", "print-disabled", f"gui/{os.getuid()}").out


def test_a_file_that_launchd_refuses_is_told(rig: Rig, make_job, home: Home) -> None:
    service = Service(home, Launchd(rig.folder / "launchctl", rig.agents, sleep=lambda _s: None))
    service.install(make_job())
    service.stop()
    service.path.chmod(0o666)
    launchd = rig.launchd
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mtplx_launchd.launchd.SETTLE_S", 0.05)
        with pytest.raises(Unavailable, match="launchd does not load the job"):
            launchd.load(service.label)


def test_without_a_user_systemd_that_is_said(rig: Rig, make_job, home: Home) -> None:
    rig.logout()
    service = Service(home, rig.systemd)
    with pytest.raises(FailedPrecondition, match="no user systemd runs here"):
        service.install(make_job())
    assert not service.path.exists()
    assert service.look().state == NOT_INSTALLED


def test_tools_that_are_not_there(home: Home, make_job, folder: Path) -> None:
    for backend in (Launchd(folder / "none", folder), Systemd(folder / "none", folder)):
        with pytest.raises(FailedPrecondition, match="foreground"):
            Service(home, backend).install(make_job())


def test_each_system_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for platform, name in (("darwin", "launchd"), ("linux", "systemd")):
        monkeypatch.setattr(sys, "platform", platform)
        assert this_backend().name == name


def test_purging_takes_what_the_daemon_made_and_nothing_else(home: Home) -> None:
    (home.packs / "mine").mkdir()
    home.config_file.write_text("")
    (home.root / "letters.txt").write_text("mine")
    assert home.packs in purge(home)
    assert [path.name for path in home.root.iterdir()] == ["letters.txt"]
    (home.root / "letters.txt").unlink()
    purge(home)
    assert not home.root.exists()
    assert purge(home) == []


def test_nothing_is_purged_while_a_daemon_holds_the_home(home: Home) -> None:
    from mtplxd.rpc.sockets import Claim

    claim = Claim(home.root / ".daemon.lock", home.socket, "this home")
    with pytest.raises(FailedPrecondition, match="a daemon runs in this home"):
        purge(home)
    claim.release()
    assert home.packs.is_dir()


def test_a_link_in_the_home_is_removed_and_not_followed(home: Home, folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    home.runs.rmdir()
    home.runs.symlink_to(folder / "elsewhere")
    purge(home)
    assert (folder / "elsewhere").is_dir()
