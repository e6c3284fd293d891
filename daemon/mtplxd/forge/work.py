"""What a step of a build is and what it is given: values and interfaces, no step and no order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mtplxd.forge.pacing import IsCancelled, Tell
from mtplxd.forge.parts import Parts
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.runs import Run
from mtplxd.forge.state import RunState
from mtplxd.paths import Home, HuggingFace

Json = Any


class EngineSteps(Protocol):
    """What only the daemon can do with a pack's folder, since it has the engine; both block. They raise what measuring
    and verifying raise, and Cancelled.
    """

    def measure(self, pack: Path, recipe: BuildRecipe, tell: Tell, cancelled: IsCancelled) -> dict[str, Json]:
        """Tune's own measurement: verdict, message, depth, rows, machine, notes and the rest, as JSON."""

    def verify(self, pack: Path, recipe: BuildRecipe, tell: Tell, cancelled: IsCancelled) -> dict[str, Json]:
        """`mtplx verify`'s own checks: passed, failures, and the record that the pack keeps, as JSON."""

    def release(self, pack: Path) -> None:
        """Takes the pack out of memory, as far as it is there; waits a moment for who still works with it."""


class Lost(Exception):
    """A step's end that is a verdict and no error: the build makes no pack. `result` is what it found."""

    def __init__(
        self, verdict: str, reasons: Sequence[str], result: Mapping[str, Json] | None = None
    ) -> None:
        super().__init__(verdict)
        self.verdict, self.result = verdict, dict(result or {})
        self.reasons = tuple(reason.removeprefix(f"{verdict}: ") for reason in reasons)


@dataclass(frozen=True)
class Made:
    """What a step found, as JSON, and its product: `names` below `place`, all files of its own folder unless told.

    `known` are hashes that it has taken itself.
    """

    result: Mapping[str, Json] = field(default_factory=dict)
    place: Path | None = None
    names: Sequence[str] | None = None
    known: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """One build as a step sees it. `state` is as the last finished step left it."""

    run: Run
    recipe: BuildRecipe
    state: RunState
    home: Home
    hugging_face: HuggingFace
    parts: Parts
    tell: Tell
    cancelled: IsCancelled
    should_wait: Callable[[], str] = str
    engine: EngineSteps | None = None

    def result(self, step: str) -> Mapping[str, Json]:
        """What a finished step found."""
        return self.state.result(step)

    def place(self, step: str) -> Path:
        """Where the product of a finished step lies."""
        record = self.state.steps[step]
        return Path(record.place)

    def product(self, step: str) -> dict[str, str]:
        """Names and hashes of a finished step's product; what a later step depends on."""
        record = self.state.record(step)
        done = record is not None and record.done
        return {name: mark.sha256 for name, mark in record.files.items()} if record and done else {}


@dataclass(frozen=True)
class Step:
    """One step. `inputs` is all that its product depends on, as JSON; `make` works in a folder of its own, which is
    empty unless it `resumes` what was interrupted. One that is not `wanted` leaves no record.
    """

    name: str
    inputs: Callable[[Work], Json]
    make: Callable[[Work, Path], Made]
    wanted: Callable[[Work], bool] = lambda _work: True
    resumes: bool = False
    holds: Callable[[Work], bool] = lambda _work: True
    """Whether the product is good in a way that its files do not show."""
    spent: Callable[[Work], bool] = lambda _work: False
    """Whether the product may be gone, because all that was made of it stands."""
