"""What must leave memory so that a model fits, and what is left for contexts: pure arithmetic over sizes in bytes.

It knows no model, clock or system: sizes and readings are arguments, so any machine is testable anywhere. What one
model takes and a machine may give is `packs.memory`'s, whose names are at hand here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtplxd.packs.memory import (
    GIB,
    KV_FLOOR_TOKENS,
    RUNTIME_BYTES,
    Need,
    budget_bytes,
    kv_bytes_per_token,
    margin_bytes,
    need_of,
    tensor_bytes,
)

__all__ = [
    "GIB",
    "KV_FLOOR_TOKENS",
    "RUNTIME_BYTES",
    "Admit",
    "Need",
    "Refuse",
    "Resident",
    "budget_bytes",
    "decide",
    "kv_budget",
    "kv_bytes_per_token",
    "margin_bytes",
    "need_of",
    "tensor_bytes",
]


@dataclass(frozen=True)
class Resident:
    """A loaded model as the plan sees it. `idle_since` orders eviction, the longest idle first."""

    key: str
    need: Need
    idle: bool
    idle_since: float


@dataclass(frozen=True)
class Admit:
    """The model fits once these residents are gone, in this order."""

    evict: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refuse:
    """It does not fit even without every idle model; bytes."""

    needed: int
    available: int


def decide(
    need: Need,
    budget: int,
    free: int,
    margin: int,
    residents: Sequence[Resident],
    kv_held: int = 0,
    used: int = 0,
) -> Admit | Refuse:
    """Admit, admit after unloading idle residents (least recently used first), or refuse.

    budget: what the daemon may use; free: what the system could give right now; margin: what must stay free;
    kv_held: what contexts take now, where it is more than the plan of those in use has room for; used: what the system
    says the process takes, where that is more than all of its plan.
    A resident in use, or one that is to stay, is never chosen: neither counts as idle. What can be evicted counts as
    available.
    """
    beyond = max(0, kv_held - sum(resident.need.kv for resident in residents if not resident.idle))
    planned = RUNTIME_BYTES + beyond + sum(resident.need.total for resident in residents)
    by_budget, by_system = budget - max(planned, used), free - margin
    victims: list[str] = []
    for resident in sorted((r for r in residents if r.idle), key=lambda r: r.idle_since):
        if need.total <= min(by_budget, by_system):
            break
        by_budget += resident.need.total
        by_system += resident.need.body + resident.need.head
        victims.append(resident.key)
    available = min(by_budget, by_system)
    return Admit(tuple(victims)) if need.total <= available else Refuse(need.total, max(0, available))


def kv_budget(budget: int, free: int, margin: int, planned: Sequence[Need], held: int, used: int = 0) -> int:
    """What contexts may take in all, the `held` bytes they take now included.

    The plan's rest once every model has its weights and transients, and no more than the system could give now, or than
    what the process takes (`used`, by the system's own count) leaves of the budget; but never less than the room the
    models were loaded with.
    """
    by_plan = budget - RUNTIME_BYTES - sum(need.total - need.kv for need in planned)
    by_size = held + budget - used
    return max(sum(need.kv for need in planned), min(by_plan, by_size, held + free - margin))
