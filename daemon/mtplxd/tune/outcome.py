"""What became of a decision, in a sentence: whether it is used from now on, and what went. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mtplxd.tune.decision import Decision


@dataclass(frozen=True, slots=True)
class Kept:
    """Whether the winner was saved, whether an older one was cleared, whether either was asked for."""

    saved: bool = False
    cleared: bool = False
    asked: bool = True


def say_outcome(decision: Decision, kept: Kept) -> str:
    """The decision's sentence and what follows from it."""
    return f"{decision.message}; {_say_kept(decision, kept)}"


def _say_kept(decision: Decision, kept: Kept) -> str:
    if kept.saved:
        return "saved: requests that name no depth use it"
    if kept.cleared:
        return "nothing is saved, and the winner of an earlier run is cleared"
    if decision.depth is None:
        return "nothing is saved"
    return "it could not be saved, see `mtplx logs`" if kept.asked else "not saved, as asked"
