"""What a training came to: a head that is better than before, or why it is not. A failure is a result, no error."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss
from mtplxd.files import write_atomically
from mtplxd.forge.shards import DRAWN, HELD_OUT_ROWS
from mtplxd.packs.detector import TRAINED_HERE
from mtplxd.packs.fingerprint import head_fingerprint

WORK = "training"
"""The folder of a run that a training has to itself."""
FILE = "training.json"
SIDECAR = f"{WORK}/mtp.safetensors"
ORIGIN = TRAINED_HERE
FAILED = "training_failed"


@dataclass(frozen=True)
class Training:
    """`method` is new, full or lora. `sidecar` is the head's file relative to the run's folder, empty where it failed,
    for the `reason`. Acceptances are of held-out text, as `held_out` measures; `guess` is a constant draft's.

    `parent_fingerprint` is that of the head it was made from, empty for a new one; `settings` are the run's own.
    """

    method: str
    reason: str
    sidecar: str
    body_fingerprint: str
    head_fingerprint: str
    parent_fingerprint: str
    before: dict[str, Any]
    after: dict[str, Any]
    guess: float
    tokens: int
    steps: int
    parameters: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether there is a head that is better than before."""
        return not self.reason

    @property
    def verdict(self) -> str:
        """`trained`, or the failure's name."""
        return ORIGIN if self.passed else FAILED

    def document(self) -> dict[str, Any]:
        """As JSON, for a run's state and a pack's manifest; no times and no paths outside the run."""
        return {"origin": ORIGIN, "verdict": self.verdict, **asdict(self)}


def keep_training(run_folder: Path, training: Training) -> None:
    """Writes the result into a run's folder, atomically."""
    text = json.dumps(asdict(training), indent=1) + "\n"
    write_atomically(run_folder / WORK / FILE, text.encode())
    forget_rows(run_folder)


def forget_rows(run_folder: Path) -> None:
    """Removes the rows that a result was made from: gigabytes that no resumed run needs."""
    for name in (DRAWN, HELD_OUT_ROWS):
        shutil.rmtree(run_folder / WORK / name, ignore_errors=True)


def read_training(run_folder: Path) -> Training | None:
    """The result that a run has come to, None while there is none, or its head is not what it was any more."""
    path = run_folder / WORK / FILE
    try:
        training = Training(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise DataLoss("damaged result of a training", path, "remove it and resume the run") from error
    sidecar = run_folder / training.sidecar
    if training.passed and not (sidecar.is_file() and head_fingerprint(sidecar) == training.head_fingerprint):
        return None
    forget_rows(run_folder)  # an earlier call may have died on the way
    return training
