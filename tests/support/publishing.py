"""A small verified pack that may be published, for the tests of what may not and of what goes over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtplxd.forge.card import CardFacts, draft_card
from mtplxd.packs.detector import detect_head
from mtplxd.packs.manifest import Manifest, read_manifest, write_manifest
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.verified import fingerprint_of, save_verification
from support.tiny_pack import make_tiny_pack
from support.verifications import passing_findings

CHIP = "Made-up M9"
FACTS = CardFacts(
    name="tiny-mtp",
    family="llama",
    source="org/name",
    revision="c" * 40,
    licence="apache-2.0",
    verdict="depth_wins",
    depth_max=3,
    recipe={"body_bits": 4, "group_size": 64, "dtype": "auto"},
)


def make_publishable(folder: Path, *, chip: str = CHIP, **contract: Any) -> Pack:
    """A pack in `folder` with its record of a verification on a machine with that chip, a card and a licence."""
    pack = read_pack(make_tiny_pack(folder))
    (folder / "LICENSE").write_text("Apache License\nVersion 2.0, January 2004\n")
    (folder / "README.md").write_text(draft_card(FACTS), encoding="utf-8")
    record = {
        **passing_findings(date="2026-11-29"),
        "fingerprint": fingerprint_of(pack),
        "depths": list(range(detect_head(pack).depth_max + 1)),
        "machine": {"chip": chip, "os": "an os"},
    }
    save_verification(pack, record)
    if contract:
        manifest = read_manifest(folder)
        assert manifest
        write_manifest(folder, Manifest({**manifest.fields, **contract}))
    return read_pack(folder)
