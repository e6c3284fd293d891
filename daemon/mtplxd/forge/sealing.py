"""The last step of a build: the pack is made whole, read once more, and takes its place by one rename.

A kill between the rename and its record leaves a pack that names its run, by which the next try knows it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from mtplxd.errors import Cancelled, DataLoss, FailedPrecondition
from mtplxd.files import locked
from mtplxd.forge.assembling import assemble_pack
from mtplxd.forge.describing import public_recipe, seal_manifest
from mtplxd.forge.licence import licence_file
from mtplxd.forge.outcome import notes_of
from mtplxd.forge.runs import Run
from mtplxd.forge.work import Work
from mtplxd.packs.detector import detect_head
from mtplxd.packs.hub.plan import choose_papers
from mtplxd.packs.landing import disk_errors, move_in
from mtplxd.packs.manifest import Manifest, read_manifest, table, write_manifest
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.tiers import judge
from mtplxd.packs.verified import fingerprint_of
from mtplxd.paths import Home

CARD = "README.md"


def seal_pack(work: Work) -> dict[str, Any]:
    """Finishes the pack and moves it among the home's packs; what it became, as JSON.

    Raises FailedPrecondition where its name was taken meanwhile, DataLoss for a pack that cannot be read back.
    """
    target = work.home.packs / work.recipe.name
    with (
        locked(work.home.run / f"pull-{work.recipe.name}.lock", work.cancelled),
        disk_errors(work.home.packs),
    ):
        if not is_sealed(work.run, target):
            check_name_free(work.home, work.recipe.name)
            folder = assemble_pack(work, anew=True)
            _finish(work, folder)
            if work.cancelled():
                raise Cancelled("stopped before it was done", work.recipe.name)
            move_in(folder, target)
    return _describe(read_pack(target, work.recipe.name))


def is_sealed(run: Run, target: Path) -> bool:
    """Whether the pack in a place is the one that a run made."""
    try:
        manifest = read_manifest(target)
    except (DataLoss, OSError):
        return False
    return manifest is not None and table(manifest.fields, "forge_provenance").get("run") == run.id


def check_name_free(home: Home, name: str) -> None:
    """Raises FailedPrecondition where something has the name already."""
    if (home.packs / name).exists():
        fix = f"give another --name, or `mtplx rm {name}` first"
        raise FailedPrecondition("a pack of this name is there", name, fix)


def _finish(work: Work, folder: Path) -> None:
    """Adds licence, card and the last words of the manifest; then the pack must read back as what was verified."""
    for name in _papers(work.place("fetch")):
        if not (folder / name).exists():
            shutil.copyfile(work.place("fetch") / name, folder / name)
    pack = read_pack(folder, work.recipe.name)
    manifest = seal_manifest(
        pack.manifest or Manifest({}), work.run.id, work.state, work.recipe, fingerprint_of(pack)
    )
    write_manifest(folder, manifest)
    (folder / CARD).unlink(missing_ok=True)
    facts = work.parts.card_facts(**card_facts(work, pack))
    (folder / CARD).write_text(work.parts.draft_card(facts), encoding="utf-8")
    _check_verified(read_pack(folder, work.recipe.name))


def card_facts(work: Work, pack: Pack) -> dict[str, Any]:
    """What a card says, by name; nothing of this machine but what it measured."""
    source, measured = work.result("fetch"), work.result("measure")
    return {
        "name": work.recipe.name,
        "family": pack.family,
        "source": source.get("repo"),
        "revision": source.get("revision"),
        "licence": source.get("licence"),
        "verdict": measured.get("verdict", ""),
        "depth_max": detect_head(pack).depth_max,
        "recipe": public_recipe(work.recipe),
        "rows": measured.get("rows", ()),
        "machine": measured.get("machine"),
        "decision": {"depth": measured.get("depth")},
        "quality": work.result("convert").get("quality"),
        "calibration": _calibration(work),
        "training": work.result("train") or None,
        "licence_file": licence_file(_papers(pack.path)),
        "notes": notes_of(work.state),
    }


def _papers(folder: Path) -> list[str]:
    return choose_papers([file.name for file in folder.iterdir() if file.is_file()])


def _calibration(work: Work) -> dict[str, Any] | None:
    """As a card words it."""
    found = work.result("calibrate")
    return {**found, "verdict": found["status"]} if found else None


def _check_verified(pack: Pack) -> None:
    """A pack with a record of its verification must be the one that was verified."""
    if pack.manifest is None or not pack.manifest.verification:
        return
    tier, reasons = judge(pack)
    if tier != "verified":
        fix = "cancel the run and build again"
        raise DataLoss("the pack is not the one that was verified", "; ".join(reasons), fix)


def _describe(pack: Pack) -> dict[str, Any]:
    tier, reasons = judge(pack)
    head = detect_head(pack)
    manifest = pack.manifest
    return {
        "pack": pack.name,
        "tier": tier,
        "tier_reasons": list(reasons),
        "fingerprint": table(manifest.ours, "fingerprint") if manifest else {},
        "depth_max": head.depth_max,
        "bytes": sum(info.nbytes for file in pack.headers.values() for info in file.values()),
    }
