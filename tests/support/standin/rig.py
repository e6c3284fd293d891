"""The stand-in for a test: a folder with a supervisor's process and the two tools, sessions that begin and end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtplx_launchd.backend import Backend
from mtplx_launchd.launchd import Launchd
from mtplx_launchd.systemd import Systemd
from mtplx_launchd.tools import Said, run_tool
from support.standin.supervisor import AGENTS, SOCKET, UNITS

LIMIT_S = 60.0
TESTS = Path(__file__).parents[2]
_TOOL = """#!{python} -IS
import json, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({control!r})
line.sendall(json.dumps([{name!r}, *sys.argv[1:]]).encode() + b"\\n")
said = json.loads(line.makefile().readline())
sys.stdout.write(said["out"])
sys.stderr.write(said["err"])
sys.exit(said["code"])
"""


class Rig:
    """One machine with one user. `factor` scales throttles, `exit_factor` the time until SIGKILL."""

    def __init__(self, folder: Path, factor: float, exit_factor: float) -> None:
        self.folder, self._factors = folder, (str(factor), str(exit_factor))
        self.agents, self.units = folder / AGENTS, folder / UNITS
        self.units.mkdir(parents=True)
        self._process: subprocess.Popen[str] | None = None
        for name in ("launchctl", "systemctl"):
            tool = folder / name
            tool.write_text(_TOOL.format(python=sys.executable, control=str(folder / SOCKET), name=name))
            tool.chmod(0o755)

    @property
    def launchd(self) -> Launchd:
        return Launchd(tool=self.folder / "launchctl", agents=self.agents)

    @property
    def systemd(self) -> Systemd:
        return Systemd(tool=self.folder / "systemctl", units=self.units)

    def backend(self, name: str) -> Backend:
        return self.launchd if name == "launchd" else self.systemd

    def boot(self) -> None:
        """The machine is on; nobody is logged in."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.standin.supervisor", str(self.folder), *self._factors],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def login(self) -> None:
        """Somebody logs in at the screen."""
        self._ask("login")

    def ssh(self) -> None:
        """Somebody logs in from afar."""
        self._ask("ssh")

    def logout(self) -> None:
        """The session ends, and with it its processes; returns when they are gone."""
        self._ask("logout")

    def shut_down(self) -> None:
        """The machine is off: no process is left, files are."""
        self._ask("shutdown")
        assert self._process is not None
        self._process.communicate(timeout=LIMIT_S)
        self._process = None

    def reboot(self) -> None:
        """Off and on; nobody is logged in."""
        self.shut_down()
        self.boot()

    def starts(self) -> list[dict[str, Any]]:
        """Every start of a process since the machine is on: label, pid, and `at` on a monotonic clock."""
        found: list[dict[str, Any]] = json.loads(self._ask("history"))
        return found

    def tool(self, name: str, *words: str) -> Said:
        """What a tool answers, without the cost of its process; `folder/NAME` is the program."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(LIMIT_S)
            line.connect(str(self.folder / SOCKET))
            line.sendall(json.dumps([name, *words]).encode() + b"\n")
            return Said(**json.loads(line.makefile().readline()))

    def run_tool(self, command: Sequence[str]) -> Said:
        """In the place of the function that runs a tool's program."""
        if not Path(command[0]).exists():
            return run_tool(command)
        return self.tool(Path(command[0]).name, *command[1:])

    def _ask(self, *words: str) -> str:
        said = self.tool("rig", *words)
        assert said.code == 0, said
        return said.out

    def end(self) -> None:
        """Nothing of it is left."""
        if self._process is not None:
            self.shut_down()


@contextmanager
def standing_in(folder: Path, factor: float = 0.01, exit_factor: float = 0.2) -> Iterator[Rig]:
    """A machine that is on and has somebody at its screen."""
    rig = Rig(folder, factor, exit_factor)
    rig.boot()
    try:
        rig.login()
        yield rig
    finally:
        rig.end()
