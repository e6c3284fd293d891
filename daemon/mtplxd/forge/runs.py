"""The folders of builds: made whole, found again by id or name, listed, removed. What is in their state is `state`'s.

One folder a run, below the home's `runs`; a build that is killed while its folder is made leaves none.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mtplxd.errors import DataLoss, MtplxError, NotFound
from mtplxd.files import sync_folder, write_atomically
from mtplxd.forge.recipe import BuildRecipe, read_recipe
from mtplxd.forge.state import RunState, read_state, write_state
from mtplxd.paths import Home

_ID = re.compile(r"build-\d{8}-\d{6}-[0-9a-f]{6}")
_NEW, _TRASH = ".new-", ".trash-"
_PROMPTS = "prompts"
_TRIES, _AGAIN_S = 10, 0.2
_DAMAGED = "`mtplx forge cancel` it, and build again"


@dataclass(frozen=True)
class Run:
    """One build's folder. Each step has a folder of its own in it; `pack` is put together from them."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def pack(self) -> Path:
        return self.folder / "pack"

    def layer(self, step: str) -> Path:
        """Where a step puts what it makes."""
        return self.folder / step

    @property
    def recipe_file(self) -> Path:
        return self.folder / "recipe.json"

    @property
    def state_file(self) -> Path:
        return self.folder / "state.json"

    @property
    def prompts(self) -> Path | None:
        """The user's prompts as they were when the build was begun; None without."""
        return next((self.folder / _PROMPTS).glob("*"), None)

    def recipe(self) -> BuildRecipe:
        """What was asked for. Raises DataLoss."""
        try:
            document = json.loads(self.recipe_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise DataLoss("a run's recipe cannot be read", self.recipe_file, _DAMAGED) from None
        return read_recipe(document)

    def state(self) -> RunState:
        """How far it is. Raises DataLoss."""
        return read_state(self.state_file)

    def write(self, state: RunState) -> None:
        """Replaces the state, durably. Raises OSError."""
        write_state(self.state_file, state)


def new_id(now: float, token: str) -> str:
    """A run's id: its second in UTC and six hex digits that nobody else drew."""
    return f"build-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{token}"


def create_run(home: Home, recipe: BuildRecipe, now: float, token: str) -> Run:
    """A new run's folder, there as a whole or not at all; the user's prompts go with it. Raises OSError."""
    run = Run(home.runs / new_id(now, token))
    making = Run(home.runs / f"{_NEW}{run.id}")
    making.folder.mkdir(mode=0o700)
    write_atomically(making.recipe_file, json.dumps(recipe.document(), indent=1).encode())
    if recipe.training.prompts:
        prompts = Path(recipe.training.prompts)
        (making.folder / _PROMPTS).mkdir()
        write_atomically(making.folder / _PROMPTS / prompts.name, prompts.read_bytes())
    making.write(RunState(created=now, updated=now))
    making.folder.rename(run.folder)
    sync_folder(home.runs)
    return run


def list_runs(home: Home) -> Iterator[Run]:
    """Every build, the oldest first."""
    folders = list(home.runs.iterdir()) if home.runs.is_dir() else []
    runs = [Run(folder) for folder in folders if _ID.fullmatch(folder.name) and folder.is_dir()]
    yield from sorted(runs, key=_begun)


def find_run(home: Home, wanted: str) -> Run:
    """The run of an id, or the latest that builds a pack of that name. Raises NotFound."""
    runs = list(list_runs(home))
    for run in reversed(runs):
        if run.id == wanted or _name_of(run) == wanted:
            return run
    known = runs[-1].id if runs else ""
    fix = f"see `mtplx forge runs`; the latest is {known}" if known else "there are none"
    raise NotFound("no such run", wanted[:100], fix)


def remove_run(home: Home, run: Run) -> None:
    """Deletes all that a run holds; what a kill leaves of it is no run, and goes at the next `sweep`.

    A process that the run's worker had started may write on for a moment after that was killed.
    """
    trash = home.runs / f"{_TRASH}{run.id}"
    run.folder.rename(trash)
    sync_folder(home.runs)
    for _ in range(_TRIES):
        shutil.rmtree(trash, ignore_errors=True)
        if not trash.exists():
            return
        time.sleep(_AGAIN_S)


def sweep(home: Home) -> None:
    """Removes what kills left of runs that were being made or deleted; by the one daemon of a home, when it starts."""
    for left in [*home.runs.glob(f"{_NEW}build-*"), *home.runs.glob(f"{_TRASH}build-*")]:
        shutil.rmtree(left, ignore_errors=True)


def _begun(run: Run) -> tuple[str, int]:
    """Orders runs by when they were made: the second is in the id, the rest is the age of what is never rewritten."""
    second, _, _ = run.id.rpartition("-")
    try:
        return second, run.recipe_file.stat().st_mtime_ns
    except OSError:
        return second, 0


def _name_of(run: Run) -> str:
    try:
        return run.recipe().name
    except MtplxError:
        return ""
