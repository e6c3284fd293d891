"""A build in processes that can be killed: a driver of its own with quick steps, or a real daemon with real ones.

What became of it is `build_looks`'.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.runs import Run, create_run, list_runs
from mtplxd.paths import Home
from support.daemon_process import DaemonProcess, clean_environment

PAUSE_S = 0.02
NAME = "mine"
TRIES, UNLUCKY = 6, "no_depth_beats_plain"
"""A machine that others use may measure so once; the build is then measured again."""


class Life(ABC):
    """One build; `run` is there once it was begun."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.run: Run

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it is at work."""

    @abstractmethod
    def start(self) -> None:
        """Takes it up where it stands, and does not wait."""

    @abstractmethod
    def finish(self) -> str:
        """Takes it up and waits; the verdict, or what went wrong."""

    @abstractmethod
    def close(self) -> None:
        """Ends whatever runs."""

    @abstractmethod
    def kill(self, target: str) -> None:
        """`daemon`, `worker` or `both`, without warning; returns once nothing of the build is at work."""

    def standing(self) -> str:
        """The step that was in work last."""
        unfinished = [name for name, record in self.run.state().steps.items() if not record.done]
        return unfinished[-1] if unfinished else ""

    def _kill_worker(self) -> None:
        for pid in find_workers(self.run.folder):
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


class DriverLife(Life):
    """Steps that need no model, and no daemon: `support.forge_driver`."""

    def __init__(self, home: Path, source: Path) -> None:
        super().__init__(home)
        Home(home).create()
        (home / "steer.json").write_text(f'{{"pause_s": {PAUSE_S}}}')
        recipe = BuildRecipe(source=str(source), name=NAME, train=True)
        self.run = create_run(Home(home), recipe, time.time(), os.urandom(3).hex())
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        tests = str(Path(__file__).parents[1])
        path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.forge_driver", str(self.run.folder)],
            env=clean_environment(self.home, PYTHONPATH=path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def finish(self) -> str:
        self.start()
        assert self._process is not None
        out, err = self._process.communicate()
        return out.decode().strip() or err.decode()

    def kill(self, target: str) -> None:
        assert self._process is not None
        if target == "worker" and find_workers(self.run.folder):
            self._kill_worker()
        else:
            self._process.kill()
            if target == "both":
                self._kill_worker()
        self._process.communicate()

    def close(self) -> None:
        if self.alive:
            self.kill("both")


class DaemonLife(Life):
    """A model of the zoo, built by a real daemon."""

    def __init__(self, home: Path, source: Path) -> None:
        super().__init__(home)
        self._source = source
        self._daemon: DaemonProcess | None = None

    @property
    def alive(self) -> bool:
        from mtplx_client import Client

        with Client(socket=self.home / "run" / "mtplxd.sock") as client:
            return any(one.status in ("queued", "running") for one in client.builds())

    def start(self) -> None:
        from mtplx_client import Client
        from mtplx_client.builds import BuildOptions

        if self._daemon is None:
            self._daemon = DaemonProcess(self.home).start()
        with Client(socket=self._daemon.socket) as client:
            runs = list(list_runs(Home(self.home)))
            if runs:
                events = client.resume_build(runs[-1].id)
            else:
                options = BuildOptions(quick=True, depths=(1,), accept_throttled=True)
                events = client.build(str(self._source), NAME, options)
            next(events)
            events.close()
        self.run = next(iter(list_runs(Home(self.home))))

    def finish(self) -> str:
        from mtplx_client import Client
        from mtplx_client.builds import BuildOutcome
        from mtplx_client.errors import MtplxError

        if getattr(self, "run", None) is not None and self.run.state().won:
            return self.run.state().verdict
        verdict = "no end"
        for _ in range(TRIES):
            self.start()
            assert self._daemon is not None
            try:
                with Client(socket=self._daemon.socket) as client:
                    *_, last = client.follow_build(self.run.id)
            except MtplxError as error:
                return str(error)
            verdict = last.verdict if isinstance(last, BuildOutcome) else verdict
            if verdict != UNLUCKY:
                break
        return verdict

    def kill(self, target: str) -> None:
        if target == "worker" and find_workers(self.run.folder):
            self._kill_worker()
            while self.alive:
                time.sleep(0.05)
            return
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon = None
        if target == "both":
            self._kill_worker()

    def close(self) -> None:
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon = None
        shutil.rmtree(self.home / "store", ignore_errors=True)


def find_workers(folder: Path) -> list[int]:
    """Processes that build in a run's folder, each the first of its group."""
    listed = subprocess.run(
        ["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    words = [line.split() for line in listed.splitlines()]
    return [int(line[0]) for line in words if str(folder) in line and "build" in line]
