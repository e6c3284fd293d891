"""The measurement that a pack's publisher put into the field's contract: whether it won, and is of these files.

It reads the words and compares the files they name; what tier follows is `tiers`'. Not a line of it is believed
for other files than those it was written for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss
from mtplxd.packs.contents import CONFIG
from mtplxd.packs.folder import file_stamp
from mtplxd.packs.manifest import table
from mtplxd.packs.pack import Pack
from mtplxd.packs.remembered import remembered

WON = "mtp_depth_wins"
"""The one verdict of the field that says a depth was faster than plain decoding and passed its checks."""
_OPEN = ("candidate", "fail", "pending", "blocked", "blocker", "needs", "unverified")
"""How a status begins that leaves a measurement open."""
_CHUNK = 4 * 1024 * 1024


def publisher_record(pack: Pack) -> dict[str, Any]:
    """The publisher's measurement of a pack, empty without one. A verdict alone is none."""
    evidence = table(pack.manifest.fields, "speed_evidence") if pack.manifest else {}
    return evidence if evidence.get("verdict") else {}


def publisher_said(pack: Pack) -> str:
    """When and on what the publisher measured, for a sentence."""
    verified = table(pack.manifest.fields, "verified_on") if pack.manifest else {}
    day, machine = str(verified.get("timestamp", ""))[:10], verified.get("hardware")
    return _line(f"{day} ({machine})" if isinstance(machine, str) and machine else day)


def publisher_doubts(pack: Pack) -> list[str]:
    """Why a publisher's measurement does not stand for these files; empty where it does.

    Reads config and head once, the bytes that the field's fingerprint is of.
    """
    if pack.manifest is None or not (record := publisher_record(pack)):
        return ["no publisher's measurement"]
    fields = pack.manifest.fields
    reasons = []
    if (verdict := record["verdict"]) != WON or record.get("failure_reasons"):
        reasons.append(
            f"its publisher's verdict is {_line(verdict)}" + _because(record.get("failure_reasons"))
        )
    for name in ("exactness_baseline", "speed_evidence"):
        status = _line(table(fields, name).get("status", ""))
        if status.lower().startswith(_OPEN):
            reasons.append(f"its publisher's {name} is {status}")
    reasons += _date_doubts(fields) + _row_doubts(record)
    if not _is_fingerprint(record.get("artifact_fingerprint"), pack):
        reasons.append("its publisher's measurement is of another config or head (artifact_fingerprint)")
    return reasons


def artefact_fingerprints(pack: Pack) -> tuple[str, ...]:
    """Hex digests that the field may name these files by: over config.json and the head's file, each framed by its
    name and zero bytes or simply one after the other. Empty where the head has no file of its own. Raises DataLoss.
    """
    if pack.sidecar is None:
        return ()
    config, head = pack.model_path / CONFIG, pack.sidecar
    stamps = {config: file_stamp(config), head: file_stamp(head)}
    return tuple(remembered("artefact", stamps, str(head), lambda: _hash_artefact(config, head)).split())


def _hash_artefact(config: Path, head: Path) -> str:
    """Both digests, a space between."""
    framed, joined = hashlib.sha256(), hashlib.sha256()
    for label, path in (("config.json", config), ("mtp", head)):
        framed.update(label.encode() + b"\0")
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    framed.update(chunk)
                    joined.update(chunk)
        except OSError as error:
            raise DataLoss("cannot read a file", path, error.strerror or "check the disk") from error
        framed.update(b"\0")
    return f"{framed.hexdigest()} {joined.hexdigest()}"


def _is_fingerprint(named: Any, pack: Pack) -> bool:
    return isinstance(named, str) and named.removeprefix("sha256:").lower() in artefact_fingerprints(pack)


def _date_doubts(fields: Mapping[str, Any]) -> list[str]:
    verified = _date(table(fields, "verified_on").get("timestamp"))
    if verified is None:
        return ["its publisher does not say when it was measured (verified_on.timestamp)"]
    forged = _date(table(fields, "forge_provenance").get("forged_at"))
    if forged is not None and forged > verified:
        return ["it was built after its publisher's measurement"]
    return []


def _row_doubts(record: Mapping[str, Any]) -> list[str]:
    rows = record.get("forge_verify_rows")
    cut = isinstance(rows, list) and any(
        isinstance(row, dict) and row.get("hit_token_budget") for row in rows
    )
    return ["its publisher's answers were cut at their token budget"] if cut else []


def _because(reasons: Any) -> str:
    words = [_line(reason) for reason in reasons] if isinstance(reasons, list) else []
    return f" ({', '.join(words)})" if words else ""


def _line(value: Any) -> str:
    """What a publisher wrote, in one line."""
    return " ".join(str(value).split())


def _date(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError):  # a day before the first or after the last has no local time
        return None
