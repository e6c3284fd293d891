"""What a reading of memory pressure means, and what is given back for it: pure policy over numbers.

Cheapest first: what MLX's allocator keeps, then what is kept of prompts in memory, then idle models, the longest idle
one first; at the last level nobody new is let in. Nothing that is in use is ever taken. Who reads and who gives is
`guard`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from mtplxd.platform.pressure import Pressure


class Level(IntEnum):
    """How short of memory the machine is."""

    NORMAL = 0
    WARN = 1
    CRITICAL = 2


SOME_WARN, FULL_CRITICAL = 10.0, 10.0
"""Percent of ten seconds in which some work waited for memory, and in which all did."""
CRITICAL_SHARE = 4
"""The machine is at its end where less than this part of the margin is free."""
PATIENCE_S = 5.0
"""Between two steps at `WARN`: a short spike costs the allocator's cache alone."""
SMALL = 16 << 20
"""Bytes kept of prompts that are given up at once, not by halves; caches below it are not worth a stop."""
_KERNEL = {1: Level.NORMAL, 2: Level.WARN, 4: Level.CRITICAL}


@dataclass(frozen=True)
class Idle:
    """A model that nobody uses. `pinned` ones go last, and only at the end."""

    key: str
    idle_since: float
    pinned: bool = False


@dataclass(frozen=True)
class Surplus:
    """What could be given back: bytes, and idle models."""

    cache: int = 0
    kept: int = 0
    idle: Sequence[Idle] = ()


@dataclass(frozen=True)
class Relief:
    """What to give back now: the allocator's cache, so many bytes kept of prompts, one idle model."""

    cache: bool = False
    kept: int = 0
    evict: str | None = None

    def __bool__(self) -> bool:
        return self.cache or bool(self.kept) or self.evict is not None


def judge(reading: Pressure, free: int | None, margin: int, over: int = 0) -> Level:
    """The level of a reading. `free`: bytes that the system could give now, None where that is dear to ask; `margin`:
    what should be; `over`: how much larger this process is than its budget, which the kernel does not know of.
    """
    level = Level.NORMAL if reading.kernel is None else _KERNEL.get(reading.kernel, Level.NORMAL)
    if (reading.some or 0.0) >= SOME_WARN or over > 0 or (free is not None and free < margin):
        level = max(level, Level.WARN)
    if (reading.full or 0.0) >= FULL_CRITICAL or (free is not None and free < margin // CRITICAL_SHARE):
        level = Level.CRITICAL
    return level


def choose_relief(level: Level, step: int, there: Surplus) -> Relief:
    """What to give back at the `step`-th step (from 0) since memory became short."""
    if level is Level.NORMAL:
        return Relief()
    cache = there.cache >= SMALL
    if level is Level.CRITICAL:
        return Relief(cache, there.kept, _longest_idle(there.idle, pinned=True))
    if step == 0:
        return Relief(cache)
    if there.kept:
        return Relief(cache, there.kept if there.kept <= SMALL else there.kept // 2)
    return Relief(cache, 0, _longest_idle(there.idle, pinned=False))


def _longest_idle(idle: Sequence[Idle], *, pinned: bool) -> str | None:
    """The one that goes first; a pinned one only where they may go, and after all others."""
    candidates = [one for one in idle if pinned or not one.pinned]
    ordered = sorted(candidates, key=lambda one: (one.pinned, one.idle_since))
    return ordered[0].key if ordered else None
