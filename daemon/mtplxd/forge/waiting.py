"""Whether a build should rest for now: pure, by what the machine runs on."""

from __future__ import annotations

from mtplxd.platform.power import Battery

LEAST_PERCENT = 30


def reason_to_wait(battery: Battery, *, on_battery: bool) -> str:
    """Why a build rests, in words; empty where it may go on. `on_battery` is that it was told to."""
    low = battery.draining and battery.percent is not None and battery.percent < LEAST_PERCENT
    if on_battery or not low:
        return ""
    return f"waits: the battery is at {battery.percent} %, plug in or build with --on-battery"
