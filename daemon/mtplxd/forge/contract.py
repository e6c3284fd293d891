"""What a build writes into a pack's contract of how its head is fed: first as the source says it, then as it was tried.

The loader obeys it, whatever the family's own rule is. Fingerprints, provenance and records are `sealing`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtplxd.packs.manifest import FORMAT, HEAD_SETTINGS, Manifest, read_manifest, table, write_manifest

SWITCHES = ("tap", "recursion", "concat", "norm_convention")
"""What a head with keys and values of its own may be fed in two ways of."""
CALIBRATION = "calibration"
CONTRACT = "mtp_contract"
_CARRIED = (CONTRACT, "mtp_depth_max")
"""What a source's contract says of its head under the field's names."""


def declare_head(folder: Path, source: Manifest | None, settings: Mapping[str, str]) -> None:
    """Writes a contract that says no more than how the head is fed, before anybody tried it.

    `source` is the checkpoint's own contract, `settings` the switches in force for it. The same arguments give the
    same bytes. Raises OSError.
    """
    fields = source.fields if source else {}
    kept = {name: fields[name] for name in _CARRIED if fields.get(name) is not None}
    if settings:
        kept = {CONTRACT: {}, **kept}  # where it is written does not depend on who wrote it first
    position = source.head_settings.get("position") if source else None
    stated = {**({"position": position} if position in HEAD_SETTINGS["position"] else {}), **settings}
    write_manifest(folder, Manifest({**kept, "mtplxd": {"format": FORMAT}}).with_head_settings(stated))


def declared_settings(manifest: Manifest | None) -> dict[str, str]:
    """The switches as the pack stated them before any calibration changed them; empty for those it leaves to others."""
    if manifest is None:
        return {}
    first = table(table(manifest.ours, CALIBRATION), "declared")
    stated = {**manifest.head_settings, **first}
    return {name: stated[name] for name in SWITCHES if stated.get(name) in HEAD_SETTINGS[name]}


def record_calibration(folder: Path, calibration: Mapping[str, Any]) -> None:
    """Writes how the head is fed from now on, and how that was found out. `calibration` is its document.

    Doing it twice changes nothing. Raises OSError, DataLoss for a contract that cannot be read.
    """
    manifest = read_manifest(folder) or Manifest({"mtplxd": {"format": FORMAT}})
    settings = {name: str(value) for name, value in calibration["settings"].items()}
    write_manifest(
        folder, manifest.with_head_settings(settings).with_ours(**{CALIBRATION: dict(calibration)})
    )
