"""One loaded job: its process, when it may start again, how it is ended. The time is the caller's.

launchd lets a job start once in ThrottleInterval, counted from the start before; systemd waits RestartSec from the end.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from support.standin.spec import JobSpec

_CRASHES = {
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSEGV,
    signal.SIGTRAP,
    signal.SIGSYS,
}


@dataclass
class Running:
    """A job in the supervisor's hands. `waits_from_end` is systemd's way to throttle."""

    spec: JobSpec
    basic: Mapping[str, str]
    factor: float
    exit_factor: float
    waits_from_end: bool = False
    process: subprocess.Popen[bytes] | None = None
    due: float | None = None
    began: float | None = None
    kill_at: float | None = None
    told: str = ""
    runs: int = 0
    last_code: int | None = None
    leaving: bool = False

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def wake(self, now: float) -> None:
        """Has it started as soon as it may."""
        if self.process is None:
            self.due = max(now, self._earliest(now))

    def end(self, now: float) -> None:
        """SIGTERM, and SIGKILL when its time is over; it does not come back."""
        self.leaving, self.due = True, None
        self._terminate(now)

    def cycle(self, now: float) -> None:
        """Ends it and has it started again (`kickstart -k`)."""
        self._terminate(now)
        self.due = now

    def step(self, now: float) -> bool:
        """Does what is due; True when a process was started."""
        if self.process is not None and (code := self.process.poll()) is not None:
            self._ended(code, now)
        if self.process is not None and self.kill_at is not None and now >= self.kill_at:
            self._signal(signal.SIGKILL)
            self.told, self.kill_at = "SIGKILLed", None
        if self.process is None and self.due is not None and now >= self.due:
            self._spawn(now)
            return True
        return False

    def _terminate(self, now: float) -> None:
        if self.process is not None and not self.told:
            self.told, self.kill_at = "SIGTERMed", now + self.spec.exit_s * self.exit_factor
            self._signal(signal.SIGTERM)

    def _earliest(self, now: float) -> float:
        since = now if self.waits_from_end else self.began
        return now if since is None else since + self.spec.throttle_s * self.factor

    def _ended(self, code: int, now: float) -> None:
        assert self.process is not None
        if not self.spec.abandon_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process, self.last_code, self.kill_at = None, code, None
        cycled, self.told = self.told != "" and self.due is not None, ""
        if not self.leaving and (cycled or self._comes_back(code)):
            self.due = max(now, self._earliest(now))

    def _comes_back(self, code: int) -> bool:
        keep = self.spec.restart
        if keep == "when it crashed":
            return -code in _CRASHES
        return keep == "always" or (keep == "unless it ended well" and code != 0)

    def _spawn(self, now: float) -> None:
        spec = self.spec
        soft, hard = spec.files

        def limit() -> None:
            os.umask(spec.umask)
            if soft is not None:  # launchd is root, and this is not: it gives what it was given at most
                _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, most), min(hard or soft, most)))

        with open(spec.stdout, "ab") as out, open(spec.stderr, "ab") as err:
            self.process = subprocess.Popen(
                spec.argv, env={**self.basic, **spec.environment}, cwd=spec.cwd, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True, preexec_fn=limit,
            )  # fmt: skip
        self.runs, self.began, self.due = self.runs + 1, now, None

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
