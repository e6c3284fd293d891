"""What a build came to, and what one shows of itself meanwhile, from its records: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtplxd.forge.describing import source_name
from mtplxd.forge.pipeline import ORDER
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.state import BEGUN, FAILED, OVER, RunState

TOLD = ("changed", "inconclusive")
"""What calibration may come to that is no matter of course."""
QUEUED, RUNNING, INTERRUPTED, DONE = "queued", "running", "interrupted", "done"
DETAILS = {
    "source": "fetch",
    "inspection": "inspect",
    "conversion": "convert",
    "head": "extract",
    "calibration": "calibrate",
    "training": "train",
    "verification": "verify",
    "sealed": "seal",
}
"""By the name that clients know, the step whose findings it is."""


@dataclass(frozen=True)
class Outcome:
    """A build that came to its verdict. `pack` is empty without a win; `measured` is the measurement's answer."""

    run: str
    name: str
    verdict: str
    reasons: tuple[str, ...] = ()
    pack: str = ""
    message: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    took_s: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """One line of a list of runs. `step` is the one in work, or where it stands."""

    run: str
    name: str
    source: str
    status: str
    step: str = ""
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    error: str = ""
    created: float = 0.0
    updated: float = 0.0
    resumable: bool = False
    bytes: int = 0


def outcome_of(run: str, recipe: BuildRecipe, state: RunState) -> Outcome:
    """Only of a run that is over."""
    measured = state.result("measure")
    return Outcome(
        run=run,
        name=recipe.name,
        verdict=state.verdict,
        reasons=state.reasons,
        pack=recipe.name if state.won else "",
        message=_message(recipe, state),
        measured=measured,
        details={name: dict(found) for name, step in DETAILS.items() if (found := state.result(step))},
        notes=notes_of(state),
        took_s=sum(max(0.0, record.ended - record.began) for record in state.steps.values() if record.ended),
    )


def notes_of(state: RunState) -> tuple[str, ...]:
    """What steps found that a user should know, in their order; each once."""
    found = [
        note for step in ("inspect", "convert", "extract") for note in state.result(step).get("notes", ())
    ]
    calibrated = state.result("calibrate")
    if calibrated.get("status") in TOLD:
        found.append(f"calibration: {calibrated['message']}")
    return tuple(dict.fromkeys([*found, *state.result("measure").get("notes", ())]))


def summarise(
    run: str, recipe: BuildRecipe, state: RunState, *, live: str = "", step: str = "", size: int = 0
) -> Summary:
    """`live` is queued or running where the daemon has the run in hand, `step` then the one in work; `size` is what it
    takes on disk.
    """
    status = live or {BEGUN: INTERRUPTED, FAILED: FAILED, OVER: DONE}[state.status]
    return Summary(
        run=run,
        name=recipe.name,
        source=source_name(recipe.source),
        status=status,
        step=step or _standing(state),
        verdict=state.verdict,
        reasons=state.reasons,
        error=state.error.get("message", ""),
        created=state.created,
        updated=state.updated,
        resumable=not live and state.resumable,
        bytes=size,
    )


def _standing(state: RunState) -> str:
    """The last step that was begun."""
    begun = [step for step in ORDER if step in state.steps]
    return begun[-1] if begun else ""


def _message(recipe: BuildRecipe, state: RunState) -> str:
    verified = state.result("verify")
    if state.won and verified.get("record"):
        return f"{recipe.name} is made: `mtplx generate --model {recipe.name}`"
    if state.won:
        why = verified.get("incomplete") or verified.get("unrecorded") or "it has no record"
        return f"{recipe.name} is made, but not verified, {why}: `mtplx verify {recipe.name}`"
    return "; ".join(state.reasons) or state.verdict
