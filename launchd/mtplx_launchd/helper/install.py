"""Installs and removes the fan helper: checks, stages, runs the shown commands as root, and looks at what came of it.

What runs is `plan`'s and was shown before; nothing else does.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtplxd.errors import FailedPrecondition

from mtplx_launchd.helper.archive import build_archive
from mtplx_launchd.helper.interpreter import Interpreter, check_interpreter, choose_interpreter
from mtplx_launchd.helper.plan import (
    Places,
    command_line,
    file_steps,
    remove_steps,
    render_job,
    start_steps,
)
from mtplx_launchd.helper.trust import Trust

SUDO = ("/usr/bin/sudo", "--")
Run = Callable[[Sequence[str]], int]
"""Runs one command as root and gives its exit code."""


@dataclass(frozen=True)
class Installation:
    """All that will be done. `staged` is a folder of ours with the two files, removed by `close`."""

    places: Places
    interpreter: Interpreter
    command: list[str]
    helper: bytes
    job: bytes
    staged: Path
    files: list[list[str]]
    start: list[list[str]]

    @property
    def steps(self) -> list[list[str]]:
        return [*self.files, *self.start]

    def close(self) -> None:
        shutil.rmtree(self.staged, ignore_errors=True)


def prepare(places: Places, uid: int, asked: str | None, trust: Trust) -> Installation:
    """Checks every path and stages both files. Raises FailedPrecondition naming the first path that is not root's."""
    interpreter = choose_interpreter(asked, trust)
    trust.check_place(places.helper)
    if places.keeper != "none":
        trust.check_place(places.job)
    command = command_line(places, interpreter, uid)
    helper, job = build_archive(), render_job(places, command)
    staged = Path(tempfile.mkdtemp(prefix="mtplxd-fand-"))
    (staged / "helper").write_bytes(helper)
    (staged / "job").write_bytes(job)
    return Installation(
        places, interpreter, command, helper, job, staged, file_steps(places, staged), start_steps(places)
    )


def install(plan: Installation, trust: Trust, run: Run) -> None:
    """Runs the plan. What lies in the end is compared before it is started: until then another of the user's programs
    could have changed the staged files. Raises FailedPrecondition; nothing is started then.
    """
    for step in plan.files:
        _run(step, run)
    expected = {plan.places.helper: plan.helper}
    if plan.places.keeper != "none":
        expected[plan.places.job] = plan.job
    for path, content in expected.items():
        trust.check(path)
        if path.read_bytes() != content:
            for step in remove_steps(plan.places):
                run(step)
            raise FailedPrecondition("what was installed is not what was shown", path, "look who changed it")
    for step in plan.start:
        if step[1] == "bootout":  # one that is not loaded has nothing to end
            run(step)
        else:
            _run(step, run)


def uninstall(places: Places, run: Run) -> list[list[str]]:
    """Ends the helper, which gives fans back, and removes its files; the commands that ran."""
    steps = remove_steps(places)
    for step in steps:
        if step[1] == "bootout":
            run(step)
        else:
            _run(step, run)
    return steps


def check_installed(places: Places, trust: Trust) -> str:
    """The installed helper's interpreter and paths once more, for who doubts; empty where none is installed. Raises
    FailedPrecondition naming what is not root's any more.
    """
    if not places.helper.exists():
        return ""
    trust.check(places.helper)
    if places.keeper == "none" or not places.job.exists():
        return f"{places.helper}, and no job starts it"
    trust.check(places.job)
    text = places.job.read_text(encoding="utf-8").replace("<string>", " ").replace("</string>", " ")
    words = text.replace("ExecStart=", " ").split()
    executable = words[words.index("-I") - 1] if "-I" in words else ""
    check_interpreter(Path(executable), trust)
    stale = "" if places.helper.read_bytes() == build_archive() else ", of another version: install it again"
    return f"{places.helper} under {executable}{stale}"


def as_root(command: Sequence[str]) -> int:
    """Runs it as root, through sudo where we are not."""
    prefix = () if os.geteuid() == 0 else SUDO
    try:
        return subprocess.run([*prefix, *command], check=False).returncode
    except OSError:
        return 127


def shown(step: Sequence[str]) -> str:
    """A command as a user would type it."""
    return shlex.join(step)


def _run(step: Sequence[str], run: Run) -> None:
    if code := run(step):
        raise FailedPrecondition(f"a command has failed with {code}", shown(step), "see its message above")
