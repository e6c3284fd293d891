"""launchd: one LaunchAgent in the user's own domain, driven through launchctl.

Owns the order of launchctl's verbs and what its exit codes mean. Two rules go through all of it: a job is stopped with
`bootout`, since signals race KeepAlive; and nothing is ever disabled, since that outlives reboots.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from mtplxd.errors import FailedPrecondition, Unavailable
from mtplxd.paths import absolute

from mtplx_launchd.backend import Found
from mtplx_launchd.job import Job
from mtplx_launchd.plist import AQUA, BACKGROUND, read_arguments, render_plist
from mtplx_launchd.printed import read_print
from mtplx_launchd.tools import Said, run_tool

LAUNCHCTL = Path("/bin/launchctl")
AGENTS = "~/Library/LaunchAgents"
NO_SERVICE, NO_PROCESS, IN_PROGRESS = 113, 3, 36
BUSY = (5, 37)
"""What `bootstrap` ends with while the job of that label is not gone yet, though `print` knows it no more."""
SETTLE_S, POLL_S = 20.0, 0.1


class Launchd:
    """launchd of one user. `tool` and `agents` are where launchctl and the user's LaunchAgents are."""

    name = "launchd"

    def __init__(
        self,
        tool: Path = LAUNCHCTL,
        agents: Path | None = None,
        uid: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tool, self._sleep = tool, sleep
        self._agents = absolute(AGENTS) if agents is None else agents
        uid = os.getuid() if uid is None else uid
        self._screen, self._user = f"gui/{uid}", f"user/{uid}"

    def check(self) -> None:
        """launchd is always there; its tool may not be."""
        if not self._tool.exists():
            raise FailedPrecondition("no launchctl", self._tool, "run `mtplxd` in the foreground")

    def place(self) -> str:
        """The screen's domain where somebody is logged in there, else the user's own."""
        return self._screen if self._ask("print", self._screen).code == 0 else self._user

    def why(self) -> str:
        if self.place() == self._screen:
            return f"{self._screen}, the session at the screen"
        return f"{self._user}, since nobody is logged in at the screen: install again from there to move it"

    def path(self, label: str) -> Path:
        return self._agents / f"{label}.plist"

    def render(self, job: Job) -> bytes:
        return render_plist(job, AQUA if self.place() == self._screen else BACKGROUND)

    def arguments(self, written: bytes) -> list[str]:
        return read_arguments(written)

    def look(self, label: str) -> Found:
        for domain in (self._screen, self._user):
            said = self._ask("print", f"{domain}/{label}")
            if said.code == 0:
                return read_print(said.out, domain)
        return Found("not loaded")

    def load(self, label: str) -> None:
        domain, path = self.place(), self.path(label)
        self._ask("enable", f"{domain}/{label}")  # somebody may have disabled it, which outlives reboots
        end = time.monotonic() + SETTLE_S
        while (said := self._ask("bootstrap", domain, str(path))).code != 0:
            if said.code not in BUSY or time.monotonic() > end or self.look(label).loaded:
                raise Unavailable("launchd does not load the job", said.words, f"look at {path}")
            self._sleep(POLL_S)

    def wake(self, label: str) -> None:
        said = self._ask("kickstart", f"{self.look(label).where}/{label}")
        if said.code != 0:
            raise Unavailable("launchd does not start the job", said.words, "`mtplx service restart`")

    def unload(self, label: str, patience_s: float) -> None:
        """`bootout` comes back before the process has ended: only `print` says when the label is free."""
        found = self.look(label)
        if not found.loaded:
            return
        said = self._ask("bootout", f"{found.where}/{label}")
        if said.code not in (0, NO_PROCESS, NO_SERVICE, IN_PROGRESS):
            raise Unavailable("launchd does not unload the job", said.words, "try again")
        end = time.monotonic() + patience_s
        while self.look(label).loaded:
            if time.monotonic() > end:
                raise Unavailable("the job does not end", f"pid {self.look(label).pid}", "try again")
            self._sleep(POLL_S)

    def forget(self, label: str) -> None:
        """Nothing is left of an agent without its file."""

    def _ask(self, *words: str) -> Said:
        return run_tool([str(self._tool), *words])
