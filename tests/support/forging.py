"""Runs the forge's own steps on checkpoints of the tests, and watches what they tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mtplxd.forge.body_plan import BodyPlan
from mtplxd.forge.converting import Conversion, convert_body
from mtplxd.forge.extracting import Extraction, extract_head

Told = tuple[str, int, int, str]


def silent(_stage: str, _done: int, _total: int, _detail: str) -> None:
    """Nobody listens."""


def never() -> bool:
    """Nobody cancels."""
    return False


@dataclass
class Listener:
    """Keeps what it is told, and cancels once it was told `patience` times."""

    patience: int = 1 << 30
    told: list[Told] = field(default_factory=list)

    def tell(self, *words: object) -> None:
        self.told.append(words)  # type: ignore[arg-type]

    def cancelled(self) -> bool:
        return len(self.told) >= self.patience


def convert(source: Path, out: Path, plan: BodyPlan | None = None, **asked: object) -> Conversion:
    """The step convert, by a plan or by its fields."""
    return convert_body(source, out, plan or BodyPlan(**asked), silent, never)  # type: ignore[arg-type]


def extract(source: Path, out: Path, bits: int | None = None) -> Extraction:
    """The step extract."""
    return extract_head(source, out, bits, bits is not None, silent, never)


def forge(source: Path, out: Path, **asked: object) -> tuple[Conversion, Extraction]:
    """Both."""
    return convert(source, out, **asked), extract(source, out)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def count_to(limit: int) -> Callable[[], bool]:
    """True from the call after `limit` others on."""
    calls = 0

    def cancelled() -> bool:
        nonlocal calls
        calls += 1
        return calls > limit

    return cancelled
