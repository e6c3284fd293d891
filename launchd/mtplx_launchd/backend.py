"""What the verbs of `service` need of a system that keeps jobs running; launchd and systemd each give it.

Knows neither of them, and holds no rule of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from mtplx_launchd.job import Job

State = Literal["not loaded", "running", "waiting", "stopping"]
"""`waiting` is loaded without a process: it ended well, or its next start is not due yet."""


@dataclass(frozen=True)
class Found:
    """A job as its system sees it; `last_exit` is in words, None before the first end."""

    state: State
    pid: int | None = None
    last_exit: str | None = None
    where: str = ""

    @property
    def loaded(self) -> bool:
        return self.state != "not loaded"


class Backend(Protocol):
    """One system. All raise FailedPrecondition where it is not there, Unavailable where it does not do it."""

    name: str

    def check(self) -> None:
        """Returns where jobs can be kept here."""

    def place(self) -> str:
        """Where a job would be loaded now, such as gui/501."""

    def why(self) -> str:
        """That place in words."""

    def path(self, label: str) -> Path:
        """The job's file."""

    def render(self, job: Job) -> bytes:
        """What that file says."""

    def arguments(self, written: bytes) -> list[str]:
        """The command line in such a file."""

    def look(self, label: str) -> Found:
        """The job as it is."""

    def load(self, label: str) -> None:
        """Reads the job's file, starts it, and has it started at every login."""

    def wake(self, label: str) -> None:
        """Starts a loaded job that has no process."""

    def unload(self, label: str, patience_s: float) -> None:
        """Ends it and returns once it is gone; at the next login it is back."""

    def forget(self, label: str) -> None:
        """After its file is removed: nothing of it is left."""
