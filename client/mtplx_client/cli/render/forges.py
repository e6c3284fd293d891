"""Builds, probes and publications for programs and for people."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mtplx_client.builds import BuildOutcome, BuildRun, BuildStep, Probed, Published
from mtplx_client.cli.render import tunings
from mtplx_client.cli.render.table import Column, table
from mtplx_client.cli.render.words import duration, size
from mtplx_client.measurements import Machine

_RUNS = (
    Column("RUN"),
    Column("PACK"),
    Column("SOURCE"),
    Column("STATUS"),
    Column("STEP"),
    Column("VERDICT"),
    Column("BEGUN"),
)
_DETAILS = ("source", "inspection", "conversion", "head", "calibration", "training", "verification", "sealed")
"""What a build's steps found; null where one did not run."""


def step_document(step: BuildStep) -> dict[str, Any]:
    """One event of a build."""
    return {
        "event": "step",
        "run": step.run,
        "step": step.step,
        "stage": step.stage or None,
        "progress": step.progress,
        "eta_s": step.eta_s or None,
        "message": step.message,
    }


def document(found: BuildOutcome) -> dict[str, Any]:
    """The last event of a build."""
    details = found.details
    machine = found.machine or Machine()
    return {
        "event": "final",
        "run": found.run,
        "name": found.name,
        "verdict": found.verdict,
        "failure_reasons": list(found.failure_reasons),
        "pack": found.pack or None,
        "message": found.message,
        "depth": found.chosen,
        "rows": [tunings.row_fields(row, machine) for row in found.rows],
        "notes": list(found.notes),
        "took_s": found.took_s,
        **{name: details.get(name) for name in _DETAILS},
    }


def view(found: BuildOutcome, color: bool) -> str:
    """The rows, what the steps found, and the verdict."""
    lines = [tunings.rows_view(found.rows, color), ""] if found.rows else []
    lines += [f"note: {note}" for note in found.notes]
    lines += [f"{name:<13}{words}" for name, words in _found(found) if words]
    lines.append(f"run          {found.run}, {duration(found.took_s)}")
    return "\n".join([*lines, "", f"{found.verdict}: {found.message}"])


def _found(found: BuildOutcome) -> list[tuple[str, str]]:
    details = found.details
    return [
        ("source", _some(details.get("source"), "repo", "revision", "licence")),
        ("quality", _some(_inner(details, "conversion", "quality"), "top1", "kl", "tokens")),
        ("calibration", _some(details.get("calibration"), "status", "settings")),
        ("training", _some(details.get("training"), "method", "tokens", "steps")),
        ("pack", _some(details.get("sealed"), "pack", "tier")),
    ]


def _inner(details: Mapping[str, Any], name: str, inner: str) -> Any:
    found = details.get(name)
    return found.get(inner) if isinstance(found, dict) else None


def _some(found: Any, *names: str) -> str:
    """`name value` of what is there."""
    if not isinstance(found, dict):
        return ""
    return ", ".join(
        f"{name} {_value(found[name])}" for name in names if found.get(name) not in (None, "", {}, [])
    )


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return value if isinstance(value, str) else json.dumps(value)


def run_document(found: BuildRun) -> dict[str, Any]:
    """One run."""
    return {
        "run": found.run,
        "name": found.name,
        "source": found.source or None,
        "status": found.status,
        "step": found.step or None,
        "progress": found.progress,
        "eta_s": found.eta_s or None,
        "message": found.message,
        "verdict": found.verdict or None,
        "failure_reasons": list(found.failure_reasons),
        "error": found.error or None,
        "created": found.created_unix_s,
        "updated": found.updated_unix_s,
        "resumable": found.resumable,
        "bytes": found.bytes,
    }


def runs_view(found: Sequence[BuildRun], color: bool) -> str:
    """A table of runs, and what is worth knowing of each."""
    if not found:
        return "no builds: `mtplx forge build NAME --name N` begins one"
    rows = [
        (
            one.run,
            one.name,
            one.source,
            one.status,
            one.step or "–",
            one.verdict or "–",
            _moment(one.created_unix_s),
        )
        for one in found
    ]
    lines = [table(_RUNS, rows, color)]
    lines += [f"{one.run}: {words}" for one in found if (words := _run_words(one))]
    return "\n".join(lines)


def _moment(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_s)) if unix_s else "–"


def _run_words(found: BuildRun) -> str:
    said = found.error or "; ".join(found.failure_reasons) or found.message
    return "; ".join(words for words in (said, _ways_on(found)) if words)


def _ways_on(found: BuildRun) -> str:
    """What can be done about a run that is not at work, and what it takes meanwhile."""
    if found.resumable:
        again = "measures again" if found.status == "done" else "goes on"
        return f"`mtplx forge resume {found.run}` {again}, `mtplx forge cancel {found.run}` frees {size(found.bytes)}"
    if found.status == "failed":
        return f"`mtplx forge cancel {found.run}` frees {size(found.bytes)}"
    return "its records are kept, its weights are not" if found.failure_reasons else ""


def probe_document(found: Probed) -> dict[str, Any]:
    """A probe's own words; verdict and reasons are always there."""
    return {**found.document, "verdict": found.verdict, "reasons": list(found.reasons)}


def published_document(found: Published) -> dict[str, Any]:
    """A publication's own words."""
    return {**found.document, "repo": found.repo}
