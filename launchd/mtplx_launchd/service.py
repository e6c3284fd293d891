"""The verbs of `mtplx service`, the same for every system: install, uninstall, start, stop, restart, and what is there.

Owns when a job is loaded anew; how, is the backend's. It does not wait for the daemon to answer: a client does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from mtplxd.errors import FailedPrecondition
from mtplxd.files import write_atomically
from mtplxd.paths import Home

from mtplx_launchd.backend import Backend, Found
from mtplx_launchd.job import EXIT_S, Job, job_label
from mtplx_launchd.launchd import Launchd
from mtplx_launchd.systemd import Systemd

LOADED_NAME = "service.json"
_PATIENCE_S = 15.0
"""Beyond the time after which the system kills a job."""


@dataclass(frozen=True)
class Standing:
    """What there is of a job. `state` is in words; `interpreter` what its file says, empty without one."""

    label: str
    path: Path
    state: str
    pid: int | None
    last_exit: str | None
    where: str
    interpreter: str
    edited: bool
    """Whether its file is not the one that was loaded."""

    @property
    def installed(self) -> bool:
        return self.state != NOT_INSTALLED


NOT_INSTALLED, STOPPED = "not installed", "stopped"


def this_backend() -> Backend:
    """The system that keeps jobs running on this machine."""
    return Launchd() if sys.platform == "darwin" else Systemd()


class Service:
    """The job of one home under one system."""

    def __init__(self, home: Home, backend: Backend) -> None:
        self._home, self._backend = home, backend
        self.label = job_label(home)
        self.path = backend.path(self.label)

    def look(self) -> Standing:
        """What is there now; nothing is changed. A system that is not there knows of no job."""
        try:
            self._backend.check()
            found = self._backend.look(self.label)
        except FailedPrecondition:
            found = Found("not loaded")
        return self._standing(found)

    def install(self, job: Job) -> bool:
        """Writes the job's file and has it loaded; True where anything had to be done. Once more does no harm."""
        self._backend.check()
        _check_interpreter(job)
        self._home.create()
        rendered = self._backend.render(job)
        written = self._read()
        if rendered != written:
            self._write(rendered)
        found = self._backend.look(self.label)
        moved = found.loaded and found.where != self._backend.place()
        return self._bring_up(found, stale=moved or rendered != written) or rendered != written

    def start(self) -> bool:
        """Has it running; False where it was. A file that was edited is read anew. Raises FailedPrecondition."""
        self._need_file()
        return self._bring_up(self._backend.look(self.label))

    def stop(self) -> bool:
        """Ends it until the next login or start; False where it was not loaded."""
        self._need_file()
        if not self._backend.look(self.label).loaded:
            return False
        self._unload()
        return True

    def restart(self) -> None:
        """Unloads and loads it: a mere restart would go on with the definition that was loaded once."""
        self._need_file()
        self._unload()
        self._load()

    def uninstall(self) -> bool:
        """Ends it and removes its file; packs, sessions and settings stay. False where there was nothing."""
        with contextlib.suppress(
            FailedPrecondition
        ):  # without a system that runs jobs there is a file at most
            self._backend.check()
            self._unload()
        if not self.path.exists():
            return False
        self._remove(self.path)
        self._note.unlink(missing_ok=True)
        with contextlib.suppress(FailedPrecondition):
            self._backend.check()
            self._backend.forget(self.label)
        return True

    def why_there(self) -> str:
        """Where the job is loaded, and why there."""
        return self._backend.why()

    @property
    def system(self) -> str:
        """The name of what keeps it running."""
        return self._backend.name

    def _bring_up(self, found: Found, *, stale: bool = False) -> bool:
        """Has it running; False where it was. What was loaded of another file, or is ending, goes first."""
        if found.loaded and (stale or found.state == "stopping" or self._is_edited()):
            self._unload()
            self._load()
        elif not found.loaded:
            self._load()
        elif found.state == "waiting":
            self._backend.wake(self.label)
        else:
            return False
        return True

    def _load(self) -> None:
        self._backend.load(self.label)
        with contextlib.suppress(OSError):  # a note for later: without it the file counts as not edited
            write_atomically(self._note, json.dumps({"sha256": _digest(self._read())}).encode())

    def _unload(self) -> None:
        self._backend.unload(self.label, EXIT_S + _PATIENCE_S)

    def _standing(self, found: Found) -> Standing:
        written = self._read()
        down = NOT_INSTALLED if written is None else STOPPED
        state = found.state if found.loaded else down
        arguments = self._backend.arguments(written or b"")
        return Standing(
            self.label,
            self.path,
            state,
            found.pid,
            found.last_exit,
            found.where,
            arguments[0] if arguments else "",
            found.loaded and self._is_edited(),
        )

    def _is_edited(self) -> bool:
        try:
            noted = json.loads(self._note.read_text())["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return bool(noted != _digest(self._read()))

    def _need_file(self) -> None:
        self._backend.check()
        if not self.path.exists():
            raise FailedPrecondition("the service is not installed", self.path, "`mtplx service install`")

    def _read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _cannot("read", self.path, error) from error

    def _write(self, content: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, content)
        except OSError as error:
            raise _cannot("write", self.path, error) from error

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _cannot("remove", path, error) from error

    @property
    def _note(self) -> Path:
        return self._home.run / LOADED_NAME


def _check_interpreter(job: Job) -> None:
    """A virtual environment that was moved or removed would fail at every start, and nobody would see it."""
    if not Path(job.arguments[0]).exists():
        raise FailedPrecondition("the interpreter is gone", job.arguments[0], "install mtplxd again")


def _digest(content: bytes | None) -> str:
    return hashlib.sha256(content or b"").hexdigest()


def _cannot(do: str, path: Path, error: OSError) -> FailedPrecondition:
    return FailedPrecondition(f"cannot {do} the job's file", f"{path}: {error.strerror}", "check the folder")
