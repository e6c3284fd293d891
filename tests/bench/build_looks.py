"""What a killed build may leave, and what it must have made in the end; each look answers with the first fault, or "".

It kills nothing and builds nothing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from mtplxd.errors import MtplxError
from mtplxd.forge.runs import Run
from mtplxd.packs.manifest import FILE_NAME
from mtplxd.packs.resolver import list_packs, scan_packs
from mtplxd.paths import Home

CARD = "README.md"
TIMES = {"forged_at", "run", "date", "took_s", "measured_at"}
MEASURED = ("speed_evidence", "verification", "recommended_mtp_depth")
"""What of a contract differs from one build to the next: measured rows, and what was measured when."""


def read_pack_files(folder: Path) -> dict[str, Any]:
    """Every file's hash, and the contract without what differs from build to build."""
    files = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (FILE_NAME, CARD)
    }
    contract = json.loads((folder / FILE_NAME).read_text())
    return {"files": files, "contract": _without_measured(contract)}


def finished_steps(run: Run) -> dict[str, int]:
    """How often each step that is finished was begun."""
    return {name: record.begun for name, record in run.state().steps.items() if record.done}


def look_at_kill(home: Path, run: Run, before: dict[str, int]) -> str:
    """Right after a kill: the state can be read, a pack is whole or not there, what was finished still is."""
    try:
        finished = finished_steps(run)
    except MtplxError as error:
        return f"the state is lost: {error}"
    if again := _ran_twice(before, finished):
        return again
    _, damaged = scan_packs(Home(home))
    for reason in damaged.values():
        return f"half a pack is left: {reason}"
    return ""


def look_at_end(home: Path, run: Run, verdict: str, before: dict[str, int], reference: dict[str, Any]) -> str:
    """After the build was taken up: it won, made the same, and left nothing."""
    if verdict != "depth_wins":
        return f"the build did not win: {verdict}"
    if again := _ran_twice(before, finished_steps(run)):
        return again
    if [pack.name for pack in list_packs(Home(home))] != ["mine"]:
        return "there is another pack than the one that was asked for"
    made = read_pack_files(home / "packs" / "mine")
    for kind in ("files", "contract"):
        if made[kind] != reference[kind]:
            return f"other {kind}: {_first_difference(made[kind], reference[kind])}"
    left = sorted(path.name for path in run.folder.iterdir())
    if left != ["recipe.json", "state.json"]:
        return f"the run left {left}"
    hidden = [
        path.name for place in ("packs", "runs") for path in (home / place).iterdir() if path.name[0] == "."
    ]
    return f"unfinished folders are left: {hidden}" if hidden else ""


def _ran_twice(before: dict[str, int], after: dict[str, int]) -> str:
    again = [step for step, begun in before.items() if after.get(step) != begun]
    return f"finished steps ran again: {again}" if again else ""


def _without_measured(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_measured(inner)
            for name, inner in value.items()
            if name not in TIMES and name not in MEASURED
        }
    return [_without_measured(inner) for inner in value] if isinstance(value, list) else value


def _first_difference(made: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = sorted({*made, *wanted})
    return next((name for name in names if made.get(name) != wanted.get(name)), "")
