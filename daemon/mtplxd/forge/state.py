"""How far a build is: one small file, replaced atomically, with a record of every step that was begun.

Records are values; which step is next and whether one must be done again is `pipeline`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss, InvalidArgument, MtplxError
from mtplxd.files import write_atomically
from mtplxd.forge.recipe import BuildRecipe

FORMAT = 1
BEGUN, FAILED, OVER = "begun", "failed", "over"
"""A run that is in work or was interrupted; one that an error ended; one that came to its verdict."""
RUNNING, DONE, LOST = "running", "done", "lost"
"""A step that is in work or was interrupted; one whose product was read back; one that ended the run without a win."""
WON = "depth_wins"
UNDECIDED = ("no_depth_beats_plain", "throttled", "no_baseline")
"""Verdicts of a clock: another measurement may come to another one. The rest are of the weights themselves."""
_ASKED = frozenset(spec.name for spec in fields(BuildRecipe))
_FIX = "`mtplx forge cancel` the run, and build again"


@dataclass(frozen=True)
class FileMark:
    """A file as a step left it: bytes, time of its content, sha256."""

    bytes: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True)
class StepRecord:
    """One step. `begun` counts how often it was, `inputs` is the digest of what it depended on, `files` are its
    product's, by name below `place`; times are seconds since 1970.
    """

    status: str = RUNNING
    inputs: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    files: Mapping[str, FileMark] = field(default_factory=dict)
    begun: int = 0
    began: float = 0.0
    ended: float = 0.0

    @property
    def done(self) -> bool:
        return self.status == DONE


@dataclass(frozen=True)
class RunState:
    """The whole file. `verdict` and `reasons` are there once it is over, `error` where one ended it."""

    status: str = BEGUN
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    error: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    updated: float = 0.0

    @property
    def won(self) -> bool:
        """Whether it made a pack."""
        return self.status == OVER and self.verdict == WON

    @property
    def resumable(self) -> bool:
        """Whether taking it up again can change anything."""
        if self.status == FAILED:  # what was asked for stays what it was
            return self.error.get("field", "").partition(".")[0] not in _ASKED
        return self.status != OVER or self.verdict in UNDECIDED

    def record(self, step: str) -> StepRecord | None:
        return self.steps.get(step)

    def result(self, step: str) -> Mapping[str, Any]:
        """What a finished step found; empty of one that is not finished."""
        record = self.steps.get(step)
        return record.result if record and record.status in (DONE, LOST) else {}

    def begin(self, now: float) -> RunState:
        """Taken up again, or for the first time: what ended it before is forgotten."""
        return replace(self, status=BEGUN, verdict="", reasons=(), error={}, updated=now)

    def begin_step(self, step: str, inputs: str, now: float) -> RunState:
        before = self.steps.get(step)
        begun = 1 + (before.begun if before else 0)
        return self._with(step, StepRecord(inputs=inputs, begun=begun, began=now), now)

    def finish_step(
        self, step: str, result: Mapping[str, Any], place: str, files: Mapping[str, FileMark], now: float
    ) -> RunState:
        record = replace(self.steps[step], status=DONE, result=result, place=place, files=files, ended=now)
        return self._with(step, record, now)

    def lose_step(
        self, step: str, verdict: str, reasons: tuple[str, ...], result: Mapping[str, Any], now: float
    ) -> RunState:
        """A step came to a verdict that is no win: the run is over."""
        record = replace(self.steps[step], status=LOST, result=result, ended=now)
        lost = self._with(step, record, now)
        return replace(lost, status=OVER, verdict=verdict, reasons=reasons)

    def win(self, now: float) -> RunState:
        return replace(self, status=OVER, verdict=WON, reasons=(), updated=now)

    def fail(self, error: MtplxError, now: float) -> RunState:
        said = {"code": error.code, "message": str(error), "fix": error.fix}
        if isinstance(error, InvalidArgument) and error.field:
            said["field"] = error.field
        return replace(self, status=FAILED, error=said, updated=now)

    def _with(self, step: str, record: StepRecord, now: float) -> RunState:
        return replace(self, steps={**self.steps, step: record}, updated=now)


def write_state(path: Path, state: RunState) -> None:
    """Replaces the file. Raises OSError and leaves the old one."""
    write_atomically(path, json.dumps({"format": FORMAT, **asdict(state)}, indent=1).encode())


def read_state(path: Path) -> RunState:
    """What the file holds. Raises DataLoss naming it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.pop("format") != FORMAT:
            raise DataLoss("a run's state is of another version", path, _FIX)
        steps = {name: _record(fields) for name, fields in document.pop("steps").items()}
        return RunState(**_known(RunState, {**document, "reasons": tuple(document["reasons"])}), steps=steps)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataLoss("a run's state cannot be read", path, _FIX) from None


def _record(document: dict[str, Any]) -> StepRecord:
    files = {name: FileMark(**mark) for name, mark in document.pop("files").items()}
    return StepRecord(**_known(StepRecord, document), files=files)


def _known(kind: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of later builds of ours are left out."""
    names = {spec.name for spec in fields(kind)}
    return {name: value for name, value in document.items() if name in names}
