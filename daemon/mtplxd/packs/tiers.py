"""What a pack may be trusted with: one verdict and its reasons, from files alone. It gates nothing itself.

Only a pack with a record of a verification has its weights read for it: the record is of exactly these bytes.
"""

from __future__ import annotations

from typing import Any, Literal

from mtplxd.errors import FailedPrecondition
from mtplxd.packs.bodies import body_faults
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.findings import finding_doubts, names_depths
from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.packs.hub.cache import is_snapshot
from mtplxd.packs.layouts.gemma import ASSISTANTS
from mtplxd.packs.manifest import FORMAT, HEAD_SETTINGS
from mtplxd.packs.pack import Pack
from mtplxd.packs.publisher import publisher_doubts, publisher_record, publisher_said

Tier = Literal["verified", "unverified", "incompatible", "no-mtp-head"]


def judge(pack: Pack, head: HeadReport | None = None) -> tuple[Tier, list[str]]:
    """The tier of a pack and why. Raises DataLoss when the head's file is damaged."""
    if too_new := _too_new(pack):
        return "incompatible", [too_new]
    head = head or detect_head(pack)
    if obstacles := _obstacles(pack, head):
        return "incompatible", obstacles
    if not head.present:
        return "no-mtp-head", ["no MTP head in its files, it decodes plainly", *_left_out(pack)]
    record = pack.manifest.verification if pack.manifest else {}
    if not pack.at_hand and (record or publisher_record(pack)):
        return "unverified", ["whether its verification is of these files shows when they are here: pull it"]
    reasons = doubts(record, pack, head)
    if not reasons:
        return "verified", [f"verified on {record.get('date')}"]
    if publisher_record(pack) and not _failed_here(record, pack):
        others = publisher_doubts(pack)
        if not others:
            return "verified", [f"verified by its publisher on {publisher_said(pack)}"]
        reasons += others
    if head.layout == "adapter" and not head.metadata.get("layout"):
        reasons.append(f"its file names no layout, its tensors show {head.layout}")
    return "unverified", reasons


def decodes_plainly(pack: Pack) -> bool:
    """Whether its body can be run without its head, as far as config and names tell."""
    return not _too_new(pack) and not body_faults(pack.config)


def _left_out(pack: Pack) -> list[str]:
    """A snapshot that another tool fetched may lack a head that was published in a file of its own."""
    if not is_snapshot(pack.path):
        return []
    return [
        f"whatever fetched it may have left a head out: `mtplx pull {pack.name}` takes all that was published"
    ]


def _obstacles(pack: Pack, head: HeadReport) -> list[str]:
    """Why it cannot be run as it is: its head, then its body."""
    obstacles = head.obstacles
    if head.present and not obstacles and head.layout != "adapter" and pack.manifest:
        obstacles += [f"its contract asks for {one}" for one in pack.manifest.strange_settings]
    return obstacles + _body_obstacles(pack)


def _body_obstacles(pack: Pack) -> list[str]:
    return [] if pack.family in ASSISTANTS else body_faults(pack.config)


def doubts(record: dict[str, Any], pack: Pack, head: HeadReport) -> list[str]:
    """Why a verification record says nothing of a pack's files as they are; empty where it does."""
    if not record:
        return ["no verification record for these files"]
    if record.get("passed") is not True:
        return ["its verification did not pass"]
    named = record.get("fingerprint")
    named = named if isinstance(named, dict) else {}
    reasons = []
    if named.get("body") != body_fingerprint(pack):
        reasons.append("its body is not the one that was verified")
    if named.get("head") != own_head_fingerprint(pack):
        reasons.append("its head is not the one that was verified")
    if (record.get("head_settings") or {}) != settings_of_head(pack, head):
        reasons.append("its head is fed otherwise than when it was verified")
    if not names_depths(record, head.depth_max):
        reasons.append(f"it was not verified at every depth up to {head.depth_max}")
    return reasons + finding_doubts(record)


def _failed_here(record: dict[str, Any], pack: Pack) -> bool:
    """Whether a verification of these very files failed: nobody else's word counts then."""
    if record.get("passed") is not False:
        return False
    return record.get("fingerprint") == {"body": body_fingerprint(pack), "head": own_head_fingerprint(pack)}


def settings_of_head(pack: Pack, head: HeadReport) -> dict[str, Any]:
    """How a pack says that its published head is to be fed; an adapter's file says it itself."""
    if pack.manifest is None or head.layout == "adapter":
        return {}
    return {name: value for name, value in pack.manifest.head_settings.items() if name in HEAD_SETTINGS}


def check_format(pack: Pack) -> None:
    """Raises FailedPrecondition, with both versions, for a pack made for a newer engine."""
    if too_new := _too_new(pack):
        raise FailedPrecondition(too_new, pack.name, "update mtplxd")


def _too_new(pack: Pack) -> str:
    found = pack.manifest.format if pack.manifest else 0
    return f"the pack's format is {found}, this build reads up to {FORMAT}" if found > FORMAT else ""
