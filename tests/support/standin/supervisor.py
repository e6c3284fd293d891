"""The supervisor's process: holds loaded jobs, steps them, and answers the tools on a socket, a JSON line each way.

    python -m support.standin.supervisor FOLDER FACTOR EXIT_FACTOR

Beside the tools' words it knows a few of the rig's: login, ssh, logout, history, shutdown.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.standin.running import Running
from support.standin.spec import JobSpec

STEP_S = 0.01
SOCKET, AGENTS, UNITS, DISABLED = "control.sock", "LaunchAgents", "units", "disabled.json"


@dataclass(frozen=True)
class Answer:
    """What a tool ends with and writes."""

    code: int
    out: str = ""
    err: str = ""


@dataclass(frozen=True)
class Later:
    """An answer that is not there yet: asked at every step."""

    answer: Callable[[], Answer | None]


class Supervisor:
    """All jobs by domain and label. `factor` scales the times between starts, `exit_factor` those until SIGKILL."""

    def __init__(self, folder: Path, factor: float, exit_factor: float) -> None:
        self.folder, self.factor, self.exit_factor = folder, factor, exit_factor
        self.agents, self.units = folder / AGENTS, folder / UNITS
        self.domains: set[str] = set()
        self.jobs: dict[tuple[str, str], Running] = {}
        self.free_at: dict[tuple[str, str], float] = {}
        self.definitions: dict[str, JobSpec] = {}
        self.history: list[dict[str, Any]] = []
        self.now = time.monotonic()
        try:
            self.disabled = set(json.loads((folder / DISABLED).read_text()))
        except FileNotFoundError:
            self.disabled = set()

    def add(self, key: tuple[str, str], spec: JobSpec) -> Running:
        """Takes a job in; it has no process yet."""
        systemd = key[0] == "systemd"
        job = Running(spec, self._basic(spec.label), self.factor, self.exit_factor, waits_from_end=systemd)
        self.jobs[key] = job
        return job

    def disable(self, label: str, disabled: bool) -> None:
        """The override that outlives reboots."""
        (self.disabled.add if disabled else self.disabled.discard)(label)
        (self.folder / DISABLED).write_text(json.dumps(sorted(self.disabled)))

    def step(self) -> None:
        """Does what is due for every job; one that left and has no process is gone."""
        from support.standin.launchctl import SETTLE_S

        self.now = time.monotonic()
        for key, job in list(self.jobs.items()):
            if job.step(self.now):
                self.history.append({"label": key[1], "pid": job.pid, "at": self.now})
            if job.leaving and job.process is None:
                del self.jobs[key]
                self.free_at[key] = self.now + SETTLE_S * self.factor

    def close(self, domain: str) -> None:
        """The end of a session: its jobs are told to end, and the domain is gone."""
        self.domains.discard(domain)
        for key, job in self.jobs.items():
            if key[0] == domain:
                job.end(self.now)

    def _basic(self, label: str) -> dict[str, str]:
        """All that a job has of an environment before its own."""
        home = str(self.folder / "user-home")
        Path(home).mkdir(exist_ok=True)
        return {
            "HOME": home, "USER": "somebody", "LOGNAME": "somebody", "SHELL": "/bin/sh", "TMPDIR": "/tmp",
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "XPC_SERVICE_NAME": label,
        }  # fmt: skip


def rig_answer(boss: Supervisor, words: list[str]) -> Answer | Later:
    """What the rig asks for: sessions, and what was started when."""
    from support.standin import launchctl, systemctl

    uid = os.getuid()
    if words == ["login"] or words == ["ssh"]:
        domains = [f"user/{uid}", *([f"gui/{uid}"] if words == ["login"] else [])]
        for domain in domains:
            if domain not in boss.domains:
                boss.domains.add(domain)
                launchctl.load_all(boss, domain, boss.agents)
        if systemctl.DOMAIN not in boss.domains:
            boss.domains.add(systemctl.DOMAIN)
            systemctl.start_all(boss)
        return Answer(0)
    if words in (["logout"], ["shutdown"]):
        for domain in list(boss.domains):
            boss.close(domain)
        return Later(lambda: None if boss.jobs else Answer(0))
    assert words == ["history"], words
    return Answer(0, out=json.dumps(boss.history))


def serve(boss: Supervisor) -> None:
    """Steps jobs and answers until it is told to shut down and no job is left."""
    from support.standin import launchctl, systemctl

    tools = {"launchctl": launchctl.answer, "systemctl": systemctl.answer, "rig": rig_answer}
    ear = socket.socket(socket.AF_UNIX)
    path = boss.folder / SOCKET
    path.unlink(missing_ok=True)
    ear.bind(str(path))
    ear.listen(16)
    selector = selectors.DefaultSelector()
    selector.register(ear, selectors.EVENT_READ)
    waiting: list[tuple[socket.socket, Callable[[], Answer | None]]] = []
    ending = False
    print("ready", flush=True)
    while not (ending and not waiting):
        for _ in selector.select(STEP_S):
            caller, _ = ear.accept()
            tool, *words = json.loads(caller.makefile().readline())
            boss.step()
            answer = tools[tool](boss, words)
            ending = ending or [tool, *words] == ["rig", "shutdown"]
            waiting.append(
                (caller, answer.answer if isinstance(answer, Later) else lambda found=answer: found)
            )
        boss.step()
        waiting = [pair for pair in waiting if not _tell(*pair)]


def _tell(caller: socket.socket, answer: Callable[[], Answer | None]) -> bool:
    found = answer()
    if found is None:
        return False
    with contextlib.suppress(OSError):  # the tool was killed
        caller.sendall(json.dumps(asdict(found)).encode() + b"\n")
    caller.close()
    return True


if __name__ == "__main__":
    from support.standin import supervisor  # one copy of its classes, not two

    supervisor.serve(supervisor.Supervisor(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
