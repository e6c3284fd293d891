"""MLX's own memory: the bounds it is given and what it counts. What the bounds are is the plan's; nothing is decided.

The process's size as the system sees it is `residency.memory`'s, and the one that decisions go by.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

NO_WIRED = "this device wires nothing"
IN_FORCE = "in force"


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes. `active` are arrays, `cache` what the allocator keeps for the next ones; `wired` says in words what came
    of asking for `wired_limit`.
    """

    active: int = 0
    cache: int = 0
    cache_limit: int = 0
    wired_limit: int = 0
    wired: str = ""


@dataclass
class DeviceLimits:
    """The bounds in force, once the engine thread has asked for them."""

    cache: int = 0
    wired: int = 0
    words: str = ""

    def bound(self, mx: Any, cache: int, wired: int) -> None:
        """Asks MLX for both bounds and reads back what came of it. Raises nothing: a refusal is told in words."""
        self.cache = bound_cache(mx, cache)
        self.wired, self.words = bound_wired(mx, wired)

    def read(self) -> DeviceMemory:
        """With MLX's counts of now; zeros before it is imported. From any thread: counts are no arrays."""
        mx = getattr(sys.modules.get("mtplxd.platform.mlx"), "mx", None)  # it may be on its way in
        active = int(mx.get_active_memory()) if mx else 0
        cache = int(mx.get_cache_memory()) if mx else 0
        return DeviceMemory(active, cache, self.cache, self.wired, self.words)


def bound_cache(mx: Any, most: int) -> int:
    """Lowers the allocator's cache to at most so many bytes; gives the bound in force."""
    before = int(mx.set_cache_limit(most))
    if before >= most:
        return most
    mx.set_cache_limit(before)  # the device's own is lower
    return before


def bound_wired(mx: Any, wanted: int) -> tuple[int, str]:
    """Has at most so many bytes kept resident, where the device can: the bound in force, and what came of asking."""
    most = int(mx.device_info().get("max_recommended_working_set_size", 0))
    if not most:
        return 0, NO_WIRED
    wanted = min(wanted, most)
    try:
        mx.set_wired_limit(wanted)
        held = int(mx.set_wired_limit(wanted))  # says what was in force before
    except (ValueError, RuntimeError) as error:
        return 0, f"refused: {error}"
    return held, IN_FORCE if held == wanted else f"{wanted} were asked for, {held} are in force"
