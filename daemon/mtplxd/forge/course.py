"""Takes a trainer through its schedule in a folder: goes on from the checkpoint, reports, saves, and measures on the
way. What is measured, and what follows from it, is the caller's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplxd.files import write_atomically
from mtplxd.forge.batches import RowSource
from mtplxd.forge.held_out import Acceptance
from mtplxd.forge.pacing import Pace
from mtplxd.forge.trainer import Report, Trainer


@dataclass(frozen=True)
class Course:
    """One trainer's way in `folder`; it is saved and measured every `every` steps and at the end."""

    folder: Path
    trainer: Trainer
    measure: Callable[[], Acceptance]
    every: int
    pace: Pace

    def finish(self, source: RowSource, until: int | None = None) -> None:
        """Trains what is left of the schedule, or of its first `until` steps."""
        trainer, steps = self.trainer, self.trainer.schedule.steps
        last = min(until or steps, steps)
        trainer.restore(self.folder)
        begin, first = time.monotonic(), trainer.step

        def report(found: Report) -> None:
            left = (steps - trainer.step) * (time.monotonic() - begin) / (trainer.step - first)
            detail = f"loss {found.loss:.3f}, acceptance {found.acceptance[0]:.3f}, {left / 60:.0f} min left"
            self.pace.tell("train", trainer.step, steps, detail)
            self.pace.breathe("train", trainer.step, steps)

        while trainer.step < last:
            self.pace.breathe("train", trainer.step, steps)
            trainer.run(source, min(last, (trainer.step // self.every + 1) * self.every), report)
            self._note()  # before it is saved: what died in between is measured again
            trainer.save(self.folder)

    def _note(self) -> None:
        found, step = self.measure(), self.trainer.step
        curve = [point for point in read_curve(self.folder) if point["step"] < step]
        curve.append({"step": step, **rounded(found), "digest": self.trainer.digest})
        write_atomically(self.folder / "curve.json", json.dumps(curve).encode())
        shown = ", ".join(f"{value:.3f}" for value in found.overlap)
        self.pace.tell("measure", step, self.trainer.schedule.steps, f"held-out acceptance {shown}")


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """What was measured so far, by step, and the digest of the head it was measured of."""
    path = folder / "curve.json"
    return json.loads(path.read_text()) if path.is_file() else []


def rounded(found: Acceptance) -> dict[str, Sequence[Any]]:
    """As it is written down."""
    return {
        "overlap": [round(value, 4) for value in found.overlap],
        "rounds": [[round(value, 4) for value in row] for row in found.rounds],
    }
