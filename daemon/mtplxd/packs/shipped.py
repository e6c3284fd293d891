"""The heads that come with mtplxd for bodies that ship none: which exist, and putting one into a pack.

Training them is `forge`'s; a head that a user trained is never replaced.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss
from mtplxd.files import write_atomically
from mtplxd.packs.fingerprint import head_fingerprint
from mtplxd.packs.headers import read_headers, read_metadata
from mtplxd.packs.manifest import Manifest

HEADS = Path(__file__).parent / "heads"
SIDECAR = "mtp.safetensors"
ORIGIN = "shipped"


@dataclass(frozen=True)
class ShippedHead:
    """A head's file, its fingerprint, and the record of how it was trained."""

    file: Path
    fingerprint: str
    metadata: dict[str, str]
    record: dict[str, Any]
    verification: dict[str, Any]
    """Of exactly this head on exactly its body; empty without one."""


def find_shipped(name: str, body_fingerprint: str, heads: Path = HEADS) -> ShippedHead | None:
    """The head shipped for a pack of that name, if it was trained for exactly this body."""
    file = heads / f"{name}.safetensors"
    if not file.is_file():
        return None
    metadata = read_metadata(file)
    if metadata.get("body_fingerprint") != body_fingerprint:
        return None
    record, fingerprint = _read_record(heads / f"{name}.json"), head_fingerprint(file)
    verification = record.pop("verification", None)
    if not _is_of(verification, {"body": body_fingerprint, "head": fingerprint}):
        verification = {}
    return ShippedHead(file, fingerprint, metadata, record, verification)


def put_head(folder: Path, manifest: Manifest, shipped: ShippedHead | None) -> Manifest:
    """Copies a shipped head into a pack's folder where it belongs there, and gives the manifest that says so.

    Nothing changes without a shipped head, or when the folder has a head of another origin. The caller writes
    the manifest; until then the head's own metadata still names its body.
    """
    if shipped is None:
        return manifest
    present = folder / SIDECAR
    if not present.is_file() or head_fingerprint(present) != shipped.fingerprint:
        if present.is_file() and manifest.training.get("origin") != ORIGIN:
            return manifest
        write_atomically(present, shipped.file.read_bytes(), mode=0o644)
    return describe_head(manifest, shipped)


def describe_head(manifest: Manifest, shipped: ShippedHead) -> Manifest:
    """The manifest with the shipped head's fields, in the field's names and in ours.

    A verification made here of the same files stays; one of other files goes.
    """
    layout, metadata = shipped.metadata.get("layout", ""), shipped.metadata
    dtypes = sorted({info.dtype for info in read_headers(shipped.file).values() if info.dtype != "I32"})
    fingerprint = {"body": manifest.body_fingerprint, "head": shipped.fingerprint}
    own = manifest.verification if _is_of(manifest.verification, fingerprint) else {}
    depth = {"mtp_depth_max": int(metadata["depth_max"])} if metadata.get("depth_max", "").isdecimal() else {}
    ours = {
        **manifest.ours,
        "head": {
            "layout": layout,
            "tap": metadata.get("taps"),
            "recursion": metadata.get("recursion"),
            "concat": metadata.get("concat"),
            "norm_convention": "as stored",
            "dtype": ",".join(dtypes).lower(),
            "aliases": ["embed_tokens", "lm_head"],
        },
        "fingerprint": fingerprint,
        "verification": own or shipped.verification or None,
        "training": {"origin": ORIGIN, **shipped.record},
    }
    recommended = shipped.record.get("recommended_depth")
    if type(recommended) is int:
        depth["recommended_mtp_depth"] = recommended
    contract = {"hidden_variant": metadata.get("recursion"), "concat_order": metadata.get("concat")}
    return Manifest({**manifest.fields, **depth, "mtp_contract": contract, "mtplxd": ours})


def _is_of(verification: Any, fingerprint: dict[str, Any]) -> bool:
    return isinstance(verification, dict) and verification.get("fingerprint") == fingerprint


def _read_record(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataLoss("damaged record of a shipped head", path, "install mtplxd again") from None
    return record if isinstance(record, dict) else {}
