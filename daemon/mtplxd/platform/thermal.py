"""How hot the machine is, as macOS and Linux tell it without root; the hottest part decides. Controls nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, cast

from mtplxd.platform.machine import System, this_system
from mtplxd.platform.process_info import read_thermal_state

Thermal = Literal["nominal", "fair", "limited", "serious", "critical", "unknown"]
"""Apple's four words; `limited` where a system only tells that it holds the machine back."""
ORDER: tuple[Thermal, ...] = ("unknown", "nominal", "fair", "limited", "serious", "critical")
"""Coolest first."""

_ZONES = "/sys/class/thermal/thermal_zone"
_MOST_ZONES, _MOST_TRIPS = 64, 16
_TRIPS: dict[str, Thermal] = {
    "active": "fair",
    "passive": "serious",
    "hot": "serious",
    "critical": "critical",
}
"""What it means to be at such a trip point: at a passive one Linux slows the machine down."""


def read_thermal(system: System | None = None, told: Callable[[], str] = read_thermal_state) -> Thermal:
    """As it is now, in some milliseconds; runs a program on macOS. Nothing is raised."""
    system = system or this_system()
    found = read_pressure(system, told)
    if system.name != "darwin" or found not in ("nominal", "unknown"):
        return found
    return hotter(found, parse_thermal(system.run(["/usr/bin/pmset", "-g", "therm"])))


def read_pressure(system: System | None = None, told: Callable[[], str] = read_thermal_state) -> Thermal:
    """What can be told without running a program, for whoever asks often."""
    system = system or this_system()
    if system.name == "darwin":
        return cast("Thermal", told() or "unknown")
    return _read_zones(system) if system.name == "linux" else "unknown"


def hotter(one: Thermal, other: Thermal) -> Thermal:
    """The worse of two."""
    return max(one, other, key=ORDER.index)


def parse_thermal(text: str) -> Thermal:
    """The state in what `pmset -g therm` prints: limits in per cent where there were any, else notes that say so."""
    limits = [int(found) for found in re.findall(r"(?:Speed|Scheduler)_Limit\s*=\s*(\d+)", text)]
    if limits:
        return "limited" if min(limits) < 100 else "nominal"
    if "No thermal warning level has been recorded" in text:
        return "nominal"
    level = re.search(r"thermal warning level\D*(\d+)", text, re.IGNORECASE)
    return "unknown" if level is None else "limited" if int(level[1]) else "nominal"


def _read_zones(system: System) -> Thermal:
    """The worst zone, each by the highest of its trip points that it has reached."""
    worst: Thermal = "unknown"
    for zone in range(_MOST_ZONES):
        folder = f"{_ZONES}{zone}"
        if not system.read(f"{folder}/type"):
            break
        heat = _whole(system.read(f"{folder}/temp"))
        if heat is not None:
            worst = hotter(worst, _read_zone(system, folder, heat))
    return worst


def _read_zone(system: System, folder: str, heat: int) -> Thermal:
    state: Thermal = "nominal"
    for trip in range(_MOST_TRIPS):
        kind = system.read(f"{folder}/trip_point_{trip}_type").strip()
        if not kind:
            break
        limit = _whole(system.read(f"{folder}/trip_point_{trip}_temp"))
        if limit is not None and 0 < limit <= heat:
            state = hotter(state, _TRIPS.get(kind, "nominal"))
    return state


def _whole(text: str) -> int | None:
    text = text.strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None
