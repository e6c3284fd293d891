"""A measurement of clients at the same time, for programs and for people."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from typing import Any

from mtplx_client.bench_clients import ClientsMeasurement
from mtplx_client.bench_fans import labels
from mtplx_client.cli.render import fans
from mtplx_client.cli.render.table import Column, table
from mtplx_client.cli.render.views import sampler_words
from mtplx_client.cli.render.words import duration, ratio
from mtplx_client.client_rows import ClientsRow, Wave
from mtplx_client.fans import Thermal
from mtplx_client.replies import Blas

_ROWS = (
    Column("clients", True),
    Column("tok/s", True),
    Column("× plain 1", True),
    Column("× plain", True),
    Column("ttft p50", True),
    Column("ttft p95", True),
    Column("slow/fast", True),
    Column("gap/round", True),
    Column("rounds", True),
)


def document(found: ClientsMeasurement, blas: Blas, place: Thermal) -> dict[str, Any]:
    """The JSON document, with the field names that programs rely on; null where nothing was measured."""
    return {
        "rows": [{**_row_document(row), **labels(place)} for row in found.rows],
        "model": found.model,
        "sampler": asdict(found.sampler),
        "depth": found.depth,
        "suite": found.suite,
        "max_tokens": found.max_tokens,
        "machine": {"cores": os.cpu_count(), "os": platform.platform()},
        "blas": blas.name or None,
        "waves": [_wave_document(wave) for wave in found.waves],
    }


def _row_document(row: ClientsRow) -> dict[str, Any]:
    fields = asdict(row)
    for name in ("tok_s_plain_total", "ratio_vs_plain_total", "gap_over_round"):
        fields[name] = fields[name] or None
    return fields


def _wave_document(wave: Wave) -> dict[str, Any]:
    answers = [
        {
            "tokens": answer.tokens,
            "rounds": answer.rounds,
            "ttft_s": answer.ttft_s,
            "taken_s": answer.taken_s,
            "gap_over_round": answer.gap_over_round or None,
        }
        for answer in wave.answers
    ]
    return {
        "kind": wave.kind, "width": wave.width, "repeat": wave.repeat, "tok_s": wave.tok_s, "answers": answers
    }  # fmt: skip


def view(found: ClientsMeasurement, blas: Blas, place: Thermal, color: bool) -> str:
    """The table, what its columns compare with, and what it was measured on."""
    alone = ", ".join(f"{row.tok_s_plain_one:.1f}" for row in found.rows)
    depth = "the model's depth" if found.depth is None else f"depth {found.depth}"
    read_before = sum(row.cached_tokens for row in found.rows)
    known = f"{read_before} prompt tokens had been read before: first tokens of new prompts take longer"
    lines = [
        table(_ROWS, [_cells(row) for row in found.rows], color),
        "",
        f"× plain 1: one client's plain decoding beside each row, {alone} tok/s; × plain: as many clients'",
        f"{found.model}, {depth}, {sampler_words(found.sampler)}, suite {found.suite}, "
        f"{found.max_tokens} tokens each",
        f"{os.cpu_count()} cores, BLAS {blas.name or '–'}, {blas.threads} threads, {fans.label(place)}",
        *([known] if read_before else []),
    ]
    return "\n".join(lines)


def _cells(row: ClientsRow) -> tuple[str, ...]:
    return (
        str(row.clients),
        f"{row.tok_s_total:.1f}",
        ratio(row.ratio_vs_plain_one),
        ratio(row.ratio_vs_plain_total),
        duration(row.ttft_p50_s),
        duration(row.ttft_p95_s),
        ratio(row.slowest_over_fastest),
        ratio(row.gap_over_round),
        f"{row.rounds_least}–{row.rounds_most}",
    )
