"""What a pack's contract file says of how it came to be, from the records of its build: pure, and without a local path.

How its head is fed is said once, before it is measured, and never changes after: a verification is of that too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from mtplxd import __version__
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.state import RunState
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.hub.names import find_repository
from mtplxd.packs.manifest import FORMAT, HEAD_SETTINGS, Manifest, table
from mtplxd.packs.pack import Pack

CARRIED = ("mtp_contract", "sampler", "recommended_draft_sampler", "mtp_depth_max")
"""What of the source's own contract holds for the pack made of it; what was measured of other files does not."""


def describe_pack(pack: Pack, state: RunState, recipe: BuildRecipe) -> Manifest:
    """The manifest before anything was measured: what it is and how its head is fed."""
    carried = pack.manifest.fields if pack.manifest else {}
    fields = {name: carried[name] for name in CARRIED if name in carried}
    head = detect_head(pack)
    if head.present:
        fields["mtp_depth_max"] = head.depth_max
    return Manifest(
        {
            "arch_id": pack.model_type,
            "public_model_id": recipe.name,
            **fields,
            "mtplxd": {
                "format": FORMAT,
                "family": pack.family,
                "head": _head_block(pack, head),
                "training": _training_block(state),
                **_stamp_text_only(state),
            },
        }
    )


def seal_manifest(
    manifest: Manifest, run_id: str, state: RunState, recipe: BuildRecipe, fingerprint: Mapping[str, str]
) -> Manifest:
    """The same with all that a sealed pack says: fingerprints, verification, provenance and what was measured."""
    measured = state.result("measure")
    depth = measured.get("depth")
    recommended = {"recommended_mtp_depth": depth} if type(depth) is int else {}
    fields = {
        **manifest.fields,
        **recommended,
        "speed_evidence": _evidence(measured, state),
        "forge_provenance": provenance(run_id, state, recipe),
    }
    record = state.result("verify").get("record") or None
    return Manifest(fields).with_ours(fingerprint=dict(fingerprint), verification=record)


def provenance(run_id: str, state: RunState, recipe: BuildRecipe) -> dict[str, Any]:
    """Where a pack comes from; of a folder its name alone."""
    source, fetched = state.result("fetch"), state.record("fetch")
    inputs = {name: mark.sha256 for name, mark in fetched.files.items()} if fetched else {}
    return {
        "source_repo": source.get("repo") or source_name(recipe.source),
        "source_sha": source.get("revision") or None,
        "source_format": state.result("inspect").get("source_format"),
        "source_licence": source.get("licence") or None,
        "forge_recipe": public_recipe(recipe),
        "inputs": inputs,
        "forged_at": datetime.fromtimestamp(state.created, UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "forged_locally": True,
        "run": run_id,
    }


def public_recipe(recipe: BuildRecipe) -> dict[str, Any]:
    """A recipe as others may read it."""
    document = recipe.document()
    prompts = recipe.training.prompts
    training = {**document["training"], "prompts": PurePath(prompts).name if prompts else ""}
    return {**document, "source": source_name(recipe.source), "training": training if recipe.train else None}


def source_name(source: str) -> str:
    """A repository's name as it is; of a folder the last part."""
    return source if find_repository(source) else PurePath(source).name


def _head_block(pack: Pack, head: HeadReport) -> dict[str, Any] | None:
    if not head.present:
        return None
    dtypes = sorted({info.dtype for _, info in head.located.values() if info.dtype != "I32"})
    declared = table(pack.manifest.ours, "head") if pack.manifest else {}
    settings = {name: declared[name] for name in HEAD_SETTINGS if declared.get(name) is not None}
    if head.layout == "adapter":
        settings = {"tap": head.metadata.get("taps"), "recursion": head.metadata.get("recursion")}
    return {
        "layout": head.layout,
        **settings,
        "dtype": ",".join(dtypes).lower(),
        "aliases": sorted(head.aliases),
    }


def _training_block(state: RunState) -> dict[str, Any] | None:
    found = state.result("train")
    if not found:
        return None
    return {name: value for name, value in found.items() if name not in ("sidecar", "verdict", "reason")}


def _stamp_text_only(state: RunState) -> dict[str, Any]:
    """What of its source a text model has no use for, and is not here."""
    left_out = state.result("convert").get("left_out") or {}
    return {"text_only": {"tensors": len(left_out), "bytes": sum(left_out.values())}} if left_out else {}


def _evidence(measured: Mapping[str, Any], state: RunState) -> dict[str, Any]:
    """What the measurement came to; under another name than a publisher's verdict, which stands for other checks."""
    return {
        "depth": measured.get("depth"),
        "rows": list(measured.get("rows", ())),
        "machine": measured.get("machine"),
        "status": "measured locally",
        "tune_verdict": measured.get("verdict"),
        "failure_reasons": list(state.reasons),
    }
