"""Puts the record of a verification into a pack's manifest.

What it says is `tune`'s, what it is worth `tiers`'.
"""

from __future__ import annotations

from typing import Any

from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.packs.manifest import FORMAT, Manifest, read_manifest, write_manifest
from mtplxd.packs.pack import Pack


def fingerprint_of(pack: Pack) -> dict[str, str]:
    """Body and head of a pack as its files are now, an empty text for no head. Reads all weights, once."""
    return {"body": body_fingerprint(pack), "head": own_head_fingerprint(pack)}


def save_verification(pack: Pack, record: dict[str, Any]) -> None:
    """Replaces the record in the manifest as it is now, atomically. Raises OSError and leaves the old, or DataLoss."""
    manifest = read_manifest(pack.path) or Manifest({"arch_id": pack.model_type})
    block = {"format": FORMAT, "family": pack.family, "fingerprint": record["fingerprint"], **manifest.ours}
    write_manifest(pack.path, manifest.with_ours(**{**block, "verification": record}))
