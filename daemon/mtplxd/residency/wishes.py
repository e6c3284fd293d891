"""What may be asked of a model: a depth its head drafts, a limit that can be raised, an unload while nobody uses it.

Checks of plain values; nothing is loaded or changed here.
"""

from __future__ import annotations

from mtplxd.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from mtplxd.residency.collaborators import Verdict
from mtplxd.residency.entry import Entry, ResidentView
from mtplxd.residency.pressure import Level

STRAIN_RETRY_S = 10.0


def check_not_busy(view: ResidentView, name: str) -> None:
    """Raises FailedPrecondition, at once, while a model is used or on its way in or out."""
    if view.in_use or view.state != "ready":
        activity = f"{view.in_use} in flight" if view.in_use else view.state
        raise FailedPrecondition("model is busy", f"{name}, {activity}", "wait for it or cancel it")


def check_strain(level: Level, name: str) -> None:
    """Raises ResourceExhausted while the machine has no memory left: nobody new is let in, whatever was set."""
    if level is Level.CRITICAL:
        raise ResourceExhausted(
            "this machine is out of memory",
            name,
            "close other programs, then try again: `mtplx status` shows its level",
            retry_after_s=STRAIN_RETRY_S,
        )


def check_depth(depth: int, limit: int | None, name: str) -> None:
    """Raises InvalidArgument above the head's limit, FailedPrecondition where that is 0: there is no head."""
    if limit is None or depth <= limit:
        return
    if limit == 0:
        raise FailedPrecondition("model is without an MTP head", name, "use --plain or --depth 0")
    fix = f"the head of {name} drafts up to {limit}"
    raise InvalidArgument("depth is above the head's limit", depth, fix, field="depth")


def check_depths(
    verdict: Verdict, headless: bool, depth: int | None, depth_max: int | None, name: str
) -> None:
    """A limit of its own raises the head's where one layer is fed on; where each draft has a layer, those decide."""
    most = verdict.depth_limit
    if depth_max is not None and most is not None and depth_max > most:
        fix = f"the head of {name} can be driven up to {most}"
        raise InvalidArgument("depth_max is above what the head can do", depth_max, fix, field="depth_max")
    limit = 0 if headless else verdict.depth_max and (depth_max or verdict.depth_max)
    check_depth(depth or 0, limit, name)


def check_wish(entry: Entry, headless: bool, depth_max: int | None) -> None:
    """Raises FailedPrecondition where a model is loaded another way than it is asked for."""
    loaded = entry.model.depth_max if entry.model else entry.depth_max
    if headless and not entry.headless:
        raise FailedPrecondition("model is loaded with its head", entry.pack.name, "unload it first")
    if depth_max is not None and depth_max != loaded:
        raise FailedPrecondition("model is loaded with another depth limit", loaded, "unload it first")
