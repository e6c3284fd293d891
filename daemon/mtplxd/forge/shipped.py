"""What a checkpoint's head is worth to a build: whether it ships one, and why not. Pure."""

from __future__ import annotations

from mtplxd.packs.detector import HeadReport


def ships_head(head: HeadReport) -> bool:
    """One that was trained for exactly this body is none of another's, not even of a conversion's."""
    return head.present and head.layout != "adapter"


def why_none(head: HeadReport) -> list[str]:
    """Why a checkpoint ships no head, where it does not."""
    if head.present:
        return ["its head was trained for exactly these weights, not for others made of them"]
    return ["no file of it holds an MTP head"]
