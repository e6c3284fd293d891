"""A tuning for programs and for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mtplx_client.cli.render.table import Column, table
from mtplx_client.cli.render.views import sampler_words
from mtplx_client.cli.render.words import duration, ratio, shares, size
from mtplx_client.measurements import Machine
from mtplx_client.tunings import Drift, TuneRow, Tuning

_ROWS = (
    Column("depth", True),
    Column("tok/s", True),
    Column("× plain", True),
    Column("95 % interval"),
    Column("tok/round", True),
    Column("acceptance"),
    Column("prompts", True),
)


def document(found: Tuning) -> dict[str, Any]:
    """The JSON document, with the field names that programs rely on."""
    machine = asdict(found.machine)
    decision = found.decision
    return {
        "model": found.model,
        "machine": machine,
        "key": found.key,
        "rows": [row_fields(row, found.machine) for row in found.rows],
        "drift": asdict(found.drift),
        "decision": {
            "depth": decision.chosen,
            "saved": decision.saved,
            "cleared": decision.cleared,
            "verdict": decision.verdict,
            "message": decision.message,
        },
        "sampler": asdict(found.sampler),
        "suite": found.suite,
        "max_tokens": found.max_tokens,
        "order": list(found.order),
        "notes": list(found.notes),
        "measured_at": found.measured_at,
        "cached": found.cached,
        "fingerprint": {"body": found.fingerprint_body or None, "head": found.fingerprint_head or None},
    }


def row_fields(row: TuneRow, machine: Machine) -> dict[str, Any]:
    """One row and the machine it was measured on."""
    return {
        "depth": row.asked,
        "tok_s": row.tok_s,
        "ratio": row.ratio or None,
        "ci95": list(row.ci95) or None,
        "tokens_per_round": row.tokens_per_round,
        "acceptance_by_position": list(row.acceptance_by_position),
        "round_ms": row.round_ms or None,
        "rounds": row.rounds,
        "prompts": row.prompts,
        "suite": row.suite,
        "context": row.context,
        "machine": machine.chip,
        "bandwidth_gb_s": machine.bandwidth_gb_s,
        "blas": machine.blas or None,
        "fan_mode": row.fan_mode,
        "thermal": row.thermal,
        "power": row.power,
    }


def view(found: Tuning, color: bool) -> str:
    """The table, what it was measured on, and the verdict."""
    machine = found.machine
    first = found.rows[0] if found.rows else TuneRow()
    lines = [
        rows_view(found.rows, color),
        "",
        f"{found.model}, {sampler_words(found.sampler)}, suite {found.suite}, {first.prompts} prompts of about "
        f"{first.context} tokens, {found.max_tokens} tokens each",
        f"{machine.chip}, {machine.cores} cores, {size(machine.memory)}, {machine.bandwidth_gb_s:.0f} GB/s measured, "
        f"{machine.os}",
        f"BLAS {machine.blas or '–'}, power {first.power or '–'}, thermal {first.thermal or '–'}, "
        f"fans {first.fan_mode or '–'}",
        f"plain decoding {_drift(found.drift)}",
        *(f"note: {note}" for note in found.notes),
        "",
    ]
    if found.cached:
        lines.append(f"measured before, at {found.measured_at}: --retune measures again")
    return "\n".join([*lines, f"{found.decision.verdict}: {found.decision.message}"])


def rows_view(rows: Sequence[TuneRow], color: bool) -> str:
    """The table of rows."""
    return table(_ROWS, [_row(row) for row in rows], color)


def _row(row: TuneRow) -> tuple[str, ...]:
    return (
        str(row.asked),
        f"{row.tok_s:.1f}",
        ratio(row.ratio),
        " to ".join(f"{end:.2f}" for end in row.ci95) or "–",
        f"{row.tokens_per_round:.2f}",
        shares(row.acceptance_by_position),
        str(row.prompts),
    )


def _drift(found: Drift) -> str:
    speeds = f"{found.start:.1f}, {found.middle:.1f}, {found.end:.1f} tok/s at start, middle, end"
    held = f"held for {duration(found.held_s)} of {duration(found.took_s)}"
    return f"{speeds} ({found.change:+.0%}), {held}"
