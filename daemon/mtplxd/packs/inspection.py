"""`mtplx inspect`: what a checkpoint is, what its head is, and whether it runs here, as one document.

Reads configs, indexes and headers, never MLX; bytes of weights only where a record names what they must be, and not
even then where they are elsewhere. The verdict is `tiers`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtplxd.errors import NotFound
from mtplxd.packs.bodies import body_notes
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.gate import needed_flag
from mtplxd.packs.hub.headers import open_folder
from mtplxd.packs.hub.names import find_repository
from mtplxd.packs.memory import RUNTIME_BYTES, budget_bytes, need_of_pack
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.resolver import find_pack
from mtplxd.packs.tiers import Tier, decodes_plainly, judge
from mtplxd.paths import Home, HuggingFace


@dataclass(frozen=True)
class Room:
    """What this machine has for models, bytes, and whether halves take twice their size in it."""

    total: int
    budget: int | None
    widens: bool

    @property
    def available(self) -> int:
        """Bytes for one model alone."""
        return max(0, budget_bytes(self.total, self.budget) - RUNTIME_BYTES)


@dataclass(frozen=True)
class Inspection:
    """What was found. `needs` is the word without which `generate` refuses it, None where it needs none or where none
    helps; `memory` and `room` are bytes."""

    ref: str
    pack: Pack
    head: HeadReport
    tier: Tier
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    needs: str | None
    memory: int
    room: int

    @property
    def can_run(self) -> bool:
        """Whether `generate` answers from it as it is."""
        return self.tier == "verified"

    @property
    def fits(self) -> bool:
        """Whether it can be loaded here while nothing else is."""
        return self.memory <= self.room


def look_up(name: str, home: Home, hugging_face: HuggingFace | None = None) -> Pack:
    """What `resolve` gives for a name, and else the Hub's repository of that name, of which only headers come over.

    Raises the errors of `resolve`, but for a pack's format, and those of `open_folder`.
    """
    try:
        return find_pack(name, home, hugging_face)
    except NotFound:
        if not find_repository(name):
            raise
    return read_pack(open_folder(name, hugging_face), name)


def inspect_pack(pack: Pack, ref: str, room: Room) -> Inspection:
    """Everything `inspect` says of a pack that was asked for as `ref`. Raises DataLoss for a damaged file."""
    head = detect_head(pack)
    tier, reasons = judge(pack, head)
    plain = decodes_plainly(pack)
    headless = tier not in ("verified", "unverified")
    need = need_of_pack(pack, headless=headless, widen=room.widens)
    return Inspection(
        ref=ref,
        pack=pack,
        head=head,
        tier=tier,
        reasons=tuple(reasons),
        notes=(*head.notes, *body_notes(pack.config)),
        needs=needed_flag(tier, plain),
        memory=need.total,
        room=room.available,
    )


def document(found: Inspection) -> dict[str, Any]:
    """The JSON form, with the field names that programs rely on."""
    pack = found.pack
    return {
        "ref": found.ref,
        "name": pack.name,
        "path": str(pack.path),
        "family": pack.family,
        "model_type": pack.model_type,
        "tier": found.tier,
        "reasons": list(found.reasons),
        "notes": list(found.notes),
        "head": head_document(found.head),
        "quantisation": quantisation_of(pack),
        "bytes": pack.bytes_body + pack.bytes_head,
        "bytes_body": pack.bytes_body,
        "bytes_head": pack.bytes_head,
        "context": pack.context,
        "can_run": found.can_run,
        "needs": found.needs,
        "here": pack.at_hand,
        "fits_this_machine": found.fits,
        "memory": {"needed": found.memory, "available": found.room},
    }


def head_document(head: HeadReport) -> dict[str, Any]:
    """The head's part; `layout` and `prefix` are null without one."""
    return {
        "present": head.present,
        "layout": head.layout or None,
        "scheme": head.scheme or None,
        "prefix": head.prefix or None,
        "tensors": head.tensors,
        "layers": head.layers,
        "depth_max": head.depth_max,
        "missing": list(head.missing),
        "extra": list(head.extra),
        "misshapen": list(head.misshapen),
        "aliases": dict(head.aliases),
        "file": head.file.name if head.file else None,
        "driven": head.driven,
        "trained": head.trained,
    }


def quantisation_of(pack: Pack) -> dict[str, Any] | None:
    """How the body's weights are stored where they are no plain floats: method, bits, group size, block."""
    for table in (pack.config, pack.text_config):
        for name in ("quantization", "quantization_config"):
            stated = table.get(name)
            if isinstance(stated, dict) and stated:
                return _described(stated)
    return None


def _described(stated: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "method": stated.get("quant_method") or stated.get("mode") or "affine",
        "bits": stated.get("bits"),
        "group_size": stated.get("group_size"),
        "block": stated.get("weight_block_size"),
    }
    return {name: value for name, value in found.items() if value is not None}
