"""Keeps the last measurement of each pack, so that --stats can say how a depth compares with plain decoding.

Owns the files `runs/decode-NAME.json`. A ratio is told only while body and head are those that were measured.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtplxd.paths import Home, make_private

from mtplx_client.cli.render import documents
from mtplx_client.errors import MtplxError
from mtplx_client.measurements import Measurement
from mtplx_client.replies import Pack

if TYPE_CHECKING:
    from mtplx_client.client import Client


def save(home: Home, client: Client, found: Measurement, path: str) -> None:
    """Keep `found` if it has a plain row; a full or closed folder costs the record, not the command."""
    if not any(row.asked == 0 for row in found.rows):
        return
    try:
        record = {
            "date": date.today().isoformat(),
            "fingerprint": _fingerprint(client.show(found.model).pack),
            **documents.measurement(found, path),
        }
        make_private(home.runs)
        _write(_file(home, found.model), json.dumps(record))
    except (OSError, MtplxError):
        return


def plain_note(home: Home, client: Client, model: str, depth: int) -> str:
    """`1.42 × plain (bench of 2026-01-31)` for a measured depth; empty when nothing true can be said."""
    if depth == 0:
        return ""
    try:
        record: dict[str, Any] = json.loads(_file(home, model).read_text())
        if record["fingerprint"] != _fingerprint(client.show(model).pack):
            return ""
        ratios = {row["depth"]: row["ratio_vs_plain"] for row in record["rows"]}
        measured = record["date"]
    except (OSError, ValueError, KeyError, TypeError, MtplxError):
        return ""
    return f"{ratios[depth]:.2f} × plain (bench of {measured})" if ratios.get(depth) else ""


def _file(home: Home, model: str) -> Path:
    return home.runs / f"decode-{re.sub(r'[^A-Za-z0-9._-]+', '_', model)}.json"


def _fingerprint(pack: Pack) -> dict[str, str]:
    return {"body": pack.fingerprint_body, "head": pack.fingerprint_head}


def _write(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(name, path)
