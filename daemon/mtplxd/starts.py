"""How the daemon's starts went: which ended well, when one crashed, and what the last one that failed had to say.

Owns `run/starts.json` and `logs/last-failure.log`, and the rule by which a daemon that crashes again and again comes up
without preloading. It starts and loads nothing. Used by whoever holds the home's lock, and read by the doctor.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mtplxd.files import write_atomically
from mtplxd.paths import Home

CRASHES, WITHIN_S = 3, 300.0
"""After so many crashes in so many seconds the models may be what it crashes of, so they are left out."""
FILE_NAME, FAILURE_NAME = "starts.json", "last-failure.log"
ERRORS_NAME = "mtplxd.err"
"""Where a service lets the daemon's own standard error go."""
_LOGS = ("mtplxd-faults.log", ERRORS_NAME, "mtplxd.log")
_TAIL_BYTES, _TAIL_LINES = 16 << 10, 40


@dataclass(frozen=True)
class Start:
    """One start; times are Unix seconds, 0 for what did not happen (yet). `boot` is the machine's run."""

    pid: int
    version: str
    boot: str
    began: float
    ready: float = 0.0
    ended_well: float = 0.0


@dataclass(frozen=True)
class Record:
    """What is known of the starts of one home: the latest, and when crashes were found out."""

    last: Start | None = None
    crashes: tuple[float, ...] = ()


def is_looping(crashes: Sequence[float], now: float) -> bool:
    """Whether it crashed so often lately that something it does at its start must be left out. Pure."""
    return sum(now - WITHIN_S <= crash <= now for crash in crashes) >= CRASHES


def add_crash(record: Record, boot: str, now: float) -> tuple[float, ...]:
    """The crashes of late, the one that the latest start came to counted when it is found out. Pure.

    Nothing is written by a process that is killed, so a start without an end, in the same run of the machine, is one.
    """
    recent = tuple(crash for crash in record.crashes if now - WITHIN_S <= crash <= now)
    last = record.last
    crashed = last is not None and not last.ended_well and last.boot == boot
    return (*recent, now) if crashed else recent


class Starts:
    """The record of one daemon, from its start to its end."""

    def __init__(self, home: Home, clock: Callable[[], float] = time.time) -> None:
        self._home, self._clock = home, clock
        self._record = Record()

    def begin(self, pid: int, version: str, boot: str) -> str:
        """Notes a start, before the last one's logs are begun anew; why nothing should be preloaded, or nothing."""
        now, before = self._clock(), read_record(self._home)
        crashes = add_crash(before, boot, now)
        if len(crashes) and crashes[-1] == now and before.last is not None:
            keep_failure(self._home, _how_it_ended(before.last))
        self._record = Record(Start(pid, version, boot, now), crashes)
        self._write()
        if not is_looping(crashes, now):
            return ""
        return f"nothing is preloaded: {len(crashes)} crashes within {WITHIN_S / 60:.0f} minutes, see `mtplx doctor`"

    def ready(self) -> None:
        """It serves."""
        self._note(ready=self._clock())

    def end_well(self) -> None:
        """It ends because it was told to."""
        self._note(ended_well=self._clock())

    def _note(self, **changes: float) -> None:
        assert self._record.last is not None
        last = Start(**{**asdict(self._record.last), **changes})
        self._record = Record(last, self._record.crashes)
        self._write()

    def _write(self) -> None:
        record = {
            "last": asdict(self._record.last) if self._record.last else None,
            "crashes": self._record.crashes,
        }
        with contextlib.suppress(OSError):  # a full disk keeps no daemon from starting
            write_atomically(self._home.run / FILE_NAME, json.dumps(record).encode())


def read_record(home: Home) -> Record:
    """What was noted; nothing where the file is absent or makes no sense."""
    try:
        found = json.loads((home.run / FILE_NAME).read_text(encoding="utf-8"))
        last = found["last"]
        return Record(None if last is None else Start(**last), tuple(map(float, found["crashes"])))
    except (OSError, ValueError, KeyError, TypeError):
        return Record()


def keep_failure(home: Home, what: str) -> None:
    """Keeps the ends of the logs as they are now, under a line that says what failed; of the last failure only."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
    parts = [f"{stamp} {what}"]
    for name in _LOGS:
        if lines := _tail(home.logs / name):
            parts += [f"--- {name}", *lines]
    with contextlib.suppress(OSError):
        write_atomically(home.logs / FAILURE_NAME, ("\n".join(parts) + "\n").encode())


def _how_it_ended(last: Start) -> str:
    how = "died while it served" if last.ready else "did not come up"
    began = time.strftime("%H:%M:%S", time.localtime(last.began))
    return f"mtplxd {last.version}, pid {last.pid}, started at {began}, {how}"


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        return []
