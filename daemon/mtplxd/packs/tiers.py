"""What a pack may be trusted with: one verdict and its reasons, from files alone. It gates nothing itself."""

from __future__ import annotations

from typing import Literal

from mtplxd.errors import FailedPrecondition
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.manifest import FORMAT
from mtplxd.packs.pack import Pack

Tier = Literal["verified", "unverified", "incompatible", "no-mtp-head"]


def judge(pack: Pack, head: HeadReport | None = None) -> tuple[Tier, list[str]]:
    """The tier of a pack and why. Raises DataLoss when the head's file is damaged."""
    if too_new := _too_new(pack):
        return "incompatible", [too_new]
    head = head or detect_head(pack)
    if not head.present:
        return "no-mtp-head", ["no MTP head in its files, it decodes plainly"]
    if head.problems:
        return "incompatible", list(head.problems)
    reasons = ["no verification record for these files"]
    if not head.metadata.get("layout"):
        reasons.append(f"its file names no layout, its tensors show {head.layout}")
    return "unverified", reasons


def check_format(pack: Pack) -> None:
    """Raises FailedPrecondition, with both versions, for a pack made for a newer engine."""
    if too_new := _too_new(pack):
        raise FailedPrecondition(too_new, pack.name, "update mtplxd")


def _too_new(pack: Pack) -> str:
    found = pack.manifest.format if pack.manifest else 0
    return f"the pack's format is {found}, this build reads up to {FORMAT}" if found > FORMAT else ""
