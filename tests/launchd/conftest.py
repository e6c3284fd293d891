"""A machine that is on, with somebody at its screen; and jobs that are not the daemon, so that a test is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mtplx_launchd.job import Job
from mtplxd.paths import Home
from support.daemon_process import short_folder
from support.standin.rig import Rig, standing_in

MakeJob = Callable[..., Job]


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


@pytest.fixture
def rig(folder: Path) -> Iterator[Rig]:
    with standing_in(folder / "machine") as machine:
        yield machine


@pytest.fixture
def home(folder: Path) -> Home:
    made = Home(folder / "home")
    made.create()
    return made


@pytest.fixture
def make_job(home: Home) -> MakeJob:
    """A job of these Python lines; by default one that waits for SIGTERM and ends well."""

    def make(lines: str = "import signal; signal.sigwait({15})", **more: object) -> Job:
        from mtplx_launchd.job import job_label

        arguments = (sys.executable, "-ISs", "-c", lines)
        errors = home.logs / "mtplxd.err"
        return Job(job_label(home), arguments, {"MARK": "yes"}, home.root, errors, **more)  # type: ignore[arg-type]

    return make
