"""What this machine runs on: whether the battery is in use and how full it is. Decides nothing and caches nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mtplxd.platform.machine import System, this_system

_SUPPLIES = "/sys/class/power_supply"
_BATTERIES = ("BAT0", "BAT1", "BATT", "CMB0", "macsmc-battery")


@dataclass(frozen=True)
class Battery:
    """`draining` while the machine runs on it; `percent` of its capacity, None where there is none or nothing tells."""

    draining: bool = False
    percent: int | None = None


def read_battery(system: System | None = None) -> Battery:
    """As it is now, in some milliseconds; nothing is raised."""
    system = system or this_system()
    return parse_batt(system.run(["pmset", "-g", "batt"])) if system.name == "darwin" else _read_linux(system)


def parse_batt(text: str) -> Battery:
    """The battery in what `pmset -g batt` prints."""
    found = re.search(r"\b(\d{1,3})%", text)
    return Battery("'Battery Power'" in text, int(found[1])) if found else Battery()


def _read_linux(system: System) -> Battery:
    """The first one; a machine with two uses one up before the other."""
    for name in _BATTERIES:
        share = system.read(f"{_SUPPLIES}/{name}/capacity").strip()
        if share.isdecimal():
            status = system.read(f"{_SUPPLIES}/{name}/status").strip()
            return Battery(status == "Discharging", int(share))
    return Battery()
