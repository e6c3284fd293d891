"""Who may decode what: which tiers an answer is refused for, and which words open the gate.

Measuring and verifying never ask here: that is how a pack becomes verified.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from mtplxd.errors import FailedPrecondition

REFUSED = "TIER_REFUSED"
"""Reason code of a refusal for the tier."""


@dataclass(frozen=True)
class Consent:
    """What whoever asks has agreed to: `plain` decoding without a head, or the head of a pack nobody verified."""

    plain: bool = False
    force: bool = False


def needed_flag(tier: str, plain_works: bool = True) -> str | None:
    """The word without which a pack of this tier is refused; None where it needs none, or where none helps."""
    if tier == "verified":
        return None
    if tier == "unverified":
        return "--force"
    return "--plain" if plain_works else None


def check_gate(tier: str, reasons: Sequence[str], name: str, consent: Consent) -> None:
    """Raises FailedPrecondition, with the ways on, where a pack of this tier may not answer.

    `name` is what the pack was asked for by. Plain decoding uses no head, so it needs no verification of one.
    """
    if tier == "verified" or consent.plain or (tier == "unverified" and consent.force):
        return
    what, fix = {
        "unverified": (
            "the model is not verified",
            f"run `mtplx verify {shlex.quote(name)}`, or add --force",
        ),
        "no-mtp-head": ("the model has no MTP head", "add --plain to decode plainly"),
    }.get(tier, ("the model is incompatible", "add --plain to decode without its head, where its body runs"))
    raise FailedPrecondition(what, f"{name}: {'; '.join(reasons)}", fix, reason=REFUSED)
