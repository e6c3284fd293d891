"""Installing the helper: what root runs must be root's alone up to the root of the disk, and is shown before it runs.

Here the test's own user is the trusted one and the folder of the test the root of the disk, so that every refusal can
be tried.
"""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from mtplx_client.cli.commands.thermal import user_of
from mtplx_client.doctor.helper import check_helper
from mtplx_launchd.helper import install as module
from mtplx_launchd.helper.archive import build_archive
from mtplx_launchd.helper.install import Installation, check_installed, install, prepare, uninstall
from mtplx_launchd.helper.interpreter import Interpreter, check_interpreter, choose_interpreter
from mtplx_launchd.helper.plan import (
    LABEL,
    LINUX,
    MAC,
    Places,
    command_line,
    places_here,
    remove_steps,
    render_job,
    start_steps,
)
from mtplx_launchd.helper.trust import Trust
from mtplxd.errors import FailedPrecondition, InvalidArgument, MtplxError

PYTHON = Interpreter(Path("/usr/bin/python3.11"), (3, 11))
SYSTEM = Path("/usr/bin/python3")


@pytest.fixture
def trust(folder: Path) -> Trust:
    return Trust(os.getuid(), os.getgid(), folder)


@pytest.fixture
def file(folder: Path) -> Path:
    """A file three folders deep, all of it in order."""
    inner = folder / "usr" / "libexec"
    inner.mkdir(parents=True)
    (inner / "tool").write_text("")
    for path in (folder, folder / "usr", inner):
        path.chmod(0o755)
    return inner / "tool"


def test_a_path_that_is_the_owners_alone_is_trusted(trust: Trust, file: Path) -> None:
    trust.check(file)
    trust.check_place(file.parent / "not" / "there" / "yet")
    trust.check_tree(trust.top)


@pytest.mark.parametrize("place", ["", "usr", "usr/libexec", "usr/libexec/tool"])
def test_a_component_that_everybody_may_write_to_is_refused_by_name(
    trust: Trust, file: Path, folder: Path, place: str
) -> None:
    (folder / place).chmod(0o777)
    for check in (trust.check, trust.check_place):
        with pytest.raises(FailedPrecondition, match="everybody may write") as found:
            check(file)
        assert found.value.value == folder / place
        assert found.value.fix == f"`sudo chmod go-w {folder / place}`"


def test_a_sticky_folder_is_no_exception(trust: Trust, file: Path) -> None:
    file.parent.chmod(0o1777)
    with pytest.raises(FailedPrecondition, match="everybody may write") as found:
        trust.check(file)
    assert found.value.fix == "choose a path outside of it"  # nobody should close /tmp


def test_what_is_not_there_is_refused_as_that(trust: Trust, folder: Path) -> None:
    with pytest.raises(FailedPrecondition, match="No such file or directory") as found:
        trust.check(folder / "usr" / "nobody" / "python3")
    assert found.value.fix == "give a path that is there"
    assert "this" not in found.value.what


def test_a_group_that_may_write_is_refused_unless_it_is_roots(folder: Path, file: Path) -> None:
    file.parent.chmod(0o775)
    Trust(os.getuid(), file.parent.stat().st_gid, folder).check(file)
    with pytest.raises(FailedPrecondition, match=r"group \d+ may write") as found:
        Trust(os.getuid(), 4242, folder).check(file)
    assert found.value.value == file.parent


def test_a_link_is_refused_wherever_it_leads(trust: Trust, file: Path, folder: Path) -> None:
    (folder / "link").symlink_to(file)
    with pytest.raises(FailedPrecondition, match="is a link"):
        trust.check(folder / "link")
    (folder / "folder").symlink_to(file.parent)
    with pytest.raises(FailedPrecondition, match="is a link") as found:
        trust.check(folder / "folder" / "tool")
    assert found.value.value == folder / "folder"
    with pytest.raises(FailedPrecondition, match="is a link"):
        trust.check_place(folder / "folder" / "new")


def test_another_users_file_is_refused(folder: Path, file: Path) -> None:
    with pytest.raises(FailedPrecondition, match=f"belongs to user {os.getuid()}"):
        Trust(os.getuid() + 1, 0, folder).check(file)


def test_a_library_is_trusted_whole_or_not_at_all(trust: Trust, file: Path, folder: Path) -> None:
    (file.parent / "site-packages").mkdir(mode=0o777)
    (file.parent / "site-packages").chmod(0o777)
    trust.check_tree(folder / "usr")  # which an isolated interpreter does not read
    (file.parent / "away").symlink_to(folder / "nowhere")
    trust.check_tree(folder / "usr")
    (file.parent / "here").symlink_to(file)
    trust.check_tree(folder / "usr")
    file.chmod(0o666)
    with pytest.raises(FailedPrecondition, match="everybody may write"):
        trust.check_tree(folder / "usr")


def test_a_link_out_of_a_library_must_lead_to_what_is_trusted(trust: Trust, file: Path, folder: Path) -> None:
    outside = folder / "etc"
    outside.mkdir(mode=0o755)
    (outside / "sitecustomize.py").write_text("")
    (file.parent / "sitecustomize.py").symlink_to(outside / "sitecustomize.py")
    trust.check_tree(folder / "usr")
    outside.chmod(0o777)
    with pytest.raises(FailedPrecondition, match="everybody may write") as found:
        trust.check_tree(folder / "usr")
    assert found.value.value == outside


@pytest.mark.skipif(
    not SYSTEM.exists() or SYSTEM.stat().st_uid != 0, reason="needs a Python that came with the system"
)
def test_the_systems_python_is_taken_with_all_that_it_reads() -> None:
    found = choose_interpreter(None, Trust(), [str(SYSTEM)])
    assert found.executable == Path(os.path.realpath(SYSTEM))
    assert not found.executable.is_symlink()


def test_a_users_python_is_refused_before_it_runs(folder: Path) -> None:
    mark = folder / "ran"
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\ntouch {mark}\n")
    python.chmod(0o755)
    with pytest.raises(FailedPrecondition, match="not safe to run as root"):
        choose_interpreter(str(python), Trust())
    with pytest.raises(FailedPrecondition, match="no Python that is safe"):
        choose_interpreter(None, Trust(), [str(python), "/nowhere/python3"])
    assert not mark.exists()


def test_a_python_that_reads_what_others_may_write_is_refused(folder: Path) -> None:
    """The executable is in order, a folder of its path is not."""
    library = folder / "lib"
    library.mkdir()
    told = {"version": [3, 11], "executable": str(folder / "python3"), "path": [str(library)], "loaded": []}
    fake = folder / "python3"
    fake.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
    fake.chmod(0o755)
    trust = Trust(os.getuid(), os.getgid(), folder)
    assert check_interpreter(fake, trust).version == (3, 11)
    library.chmod(0o777)
    with pytest.raises(FailedPrecondition, match="everybody may write") as found:
        check_interpreter(fake, trust)
    assert found.value.value == library


def test_jobs_say_what_they_should() -> None:
    words = command_line(MAC, PYTHON, 501)
    job = plistlib.loads(render_job(MAC, words))
    assert job["ProgramArguments"] == words
    assert words == ["/usr/bin/python3.11", "-I", "-S", "-B", str(MAC.helper), "--uid", "501"]
    assert (job["Label"], job["RunAtLoad"], job["KeepAlive"]) == (LABEL, True, True)
    assert job["ThrottleInterval"] == 10
    assert "UserName" not in job
    unit = render_job(LINUX, command_line(LINUX, PYTHON, 501)).decode()
    assert "ExecStart=/usr/bin/python3.11 -I -S -B /usr/local/libexec/mtplxd-fand --uid 501\n" in unit
    assert "Restart=always\n" in unit


@pytest.mark.parametrize(
    "path", ["/opt/my python/python3", "/opt/$(x)/python3", '/opt/"/python3', "/opt/%h/p"]
)
def test_a_path_that_a_job_could_misread_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument, match="letters"):
        command_line(LINUX, Interpreter(Path(path), (3, 11)), 501)


def test_each_system_has_its_places() -> None:
    assert places_here("darwin") == MAC
    assert places_here("linux", systemd=True) == LINUX
    nobody = places_here("linux", systemd=False)
    assert (nobody.helper, nobody.keeper, start_steps(nobody)) == (LINUX.helper, "none", [])
    assert "bootstrap" in start_steps(MAC)[-1]
    assert ["/bin/rm", "-f", str(MAC.helper)] in remove_steps(MAC)


@pytest.mark.parametrize(
    ("env", "uid"), [({}, os.getuid()), ({"SUDO_UID": "501"}, 501 if os.geteuid() == 0 else os.getuid())]
)
def test_fans_are_for_who_calls_not_for_root_behind_sudo(env: dict[str, str], uid: int) -> None:
    assert user_of(env) == uid
    assert user_of({"SUDO_UID": "x"}) == os.getuid()


class Rig:
    """An installation below a folder, its commands run by the test's own user."""

    def __init__(self, folder: Path, trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[list[str]] = []
        self.places = Places(
            folder / "lib" / "fand", folder / "job" / "fand.service", "systemd", LINUX.template, ""
        )
        for path in (folder, self.places.helper.parent, self.places.job.parent):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        self.trust = trust
        monkeypatch.setattr(module, "choose_interpreter", lambda *_: PYTHON)
        monkeypatch.setattr(module, "check_interpreter", lambda path, _: Interpreter(path, (3, 11)))

    def plan(self) -> Installation:
        return prepare(self.places, 501, None, self.trust)

    def run(self, command: Sequence[str]) -> int:
        self.ran.append([*command])
        if command[0] == "/usr/bin/install":
            shutil.copyfile(command[-2], command[-1])
            Path(command[-1]).chmod(0o644)
        elif command[0] == "/bin/rm":
            Path(command[-1]).unlink(missing_ok=True)
        return 0


@pytest.fixture
def rig(folder: Path, trust: Trust, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(folder, trust, monkeypatch)


def test_what_is_shown_is_what_runs_and_what_lies_there_then(rig: Rig) -> None:
    plan = rig.plan()
    shown = plan.steps
    install(plan, rig.trust, rig.run)
    assert rig.ran == shown
    assert rig.places.helper.read_bytes() == build_archive()
    assert rig.places.job.read_bytes() == plan.job
    assert "under /usr/bin/python3.11" in check_installed(rig.places, rig.trust)
    plan.close()
    assert not plan.staged.exists()
    ran = uninstall(rig.places, rig.run)
    assert ran == rig.ran[len(shown) :]
    assert not rig.places.helper.exists()
    assert not rig.places.job.exists()
    assert check_installed(rig.places, rig.trust) == ""


def test_files_that_were_changed_on_the_way_are_not_started(rig: Rig) -> None:
    plan = rig.plan()
    (plan.staged / "helper").write_bytes(b"something else")
    with pytest.raises(FailedPrecondition, match="not what was shown"):
        install(plan, rig.trust, rig.run)
    assert not rig.places.helper.exists()
    assert not [step for step in rig.ran if "restart" in step]
    plan.close()


def test_a_place_that_others_may_write_to_is_refused_before_anything_runs(rig: Rig) -> None:
    rig.places.helper.parent.chmod(0o777)
    with pytest.raises(FailedPrecondition, match="everybody may write") as found:
        rig.plan()
    assert found.value.value == rig.places.helper.parent
    assert rig.ran == []


def test_what_is_installed_is_checked_again_for_who_doubts(rig: Rig) -> None:
    plan = rig.plan()
    install(plan, rig.trust, rig.run)
    rig.places.helper.write_bytes(b"older")
    assert "of another version" in check_installed(rig.places, rig.trust)
    rig.places.helper.chmod(0o666)
    with pytest.raises(FailedPrecondition, match="everybody may write"):
        check_installed(rig.places, rig.trust)
    plan.close()


def test_a_command_that_fails_ends_it(rig: Rig) -> None:
    plan = rig.plan()
    with pytest.raises(MtplxError, match="a command has failed with 1"):
        install(plan, rig.trust, lambda _: 1)
    plan.close()


def test_the_archive_is_what_runs(folder: Path) -> None:
    (folder / "fand").write_bytes(build_archive())
    command = [sys.executable, "-I", "-S", "-B", str(folder / "fand"), "--help"]
    assert "--uid" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("found", "ok", "says"),
    [
        ("", True, "not installed"),
        ("/x under /usr/bin/python3.11", True, "under"),
        ("/x under /usr/bin/python3.11, of another version: install it again", False, "another version"),
        (
            FailedPrecondition("not safe to run as root, this is a link", "/x", "give"),
            False,
            "is a link (/x)",
        ),
        (PermissionError(13, "denied"), False, "denied"),
    ],
)
def test_the_doctor_repeats_the_check(found: str | Exception, ok: bool, says: str) -> None:
    def look(*_: object) -> str:
        if isinstance(found, Exception):
            raise found
        return found

    check = check_helper(look)
    assert (check.name, check.ok) == ("fan helper", ok)
    assert says in check.detail
    assert ok or check.fix
