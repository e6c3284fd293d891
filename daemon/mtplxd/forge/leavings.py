"""What stays of a build that came to its verdict: its records always, weights only as far as a resume would use them.

Which verdicts may be taken up again is `state`'s. Nothing here is needed for a build to be right, only for the disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from mtplxd.errors import MtplxError
from mtplxd.forge.runs import Run, list_runs
from mtplxd.forge.state import OVER, RunState
from mtplxd.paths import Home

RECORDS = ("recipe.json", "state.json")
_WEIGHTS = "*.safetensors"


def settle_run(run: Run) -> None:
    """Removes what nobody needs any more: all but the records where nothing can go on, of a build that may be measured
    again what was spent. Raises DataLoss, OSError.
    """
    state = run.state()
    if not state.resumable:
        _remove_all(run)
    elif state.status == OVER:
        _remove_spent(run, state)


def settle_runs(home: Home) -> None:
    """The same of every build, for a daemon that starts: the one before may have been killed at it."""
    for run in list_runs(home):
        with contextlib.suppress(MtplxError, OSError):
            settle_run(run)


def bytes_of(folder: Path) -> int:
    """What a folder's files take; one with several names counts once, one that goes meanwhile not at all."""
    sizes: dict[int, int] = {}
    for inner, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = Path(inner, name).lstat()
                sizes[found.st_ino] = found.st_size
    return sum(sizes.values())


def _remove_all(run: Run) -> None:
    """All but the records."""
    for left in run.folder.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        elif left.name not in RECORDS:
            left.unlink(missing_ok=True)


def _remove_spent(run: Run, state: RunState) -> None:
    """The weights that were fetched, which the converted ones stand for, and what a training worked with."""
    for file in run.layer("fetch").rglob(_WEIGHTS):
        file.unlink(missing_ok=True)
    record = state.record("train")
    made = {Path(record.place, name) for name in record.files} if record else set()
    for file in run.layer("train").rglob("*"):
        if file not in made and not file.is_dir():
            file.unlink(missing_ok=True)
