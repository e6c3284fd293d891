"""Whether the system holds the machine back for its heat, as macOS tells it; unknown elsewhere. Controls nothing."""

from __future__ import annotations

import re
from typing import Literal

from mtplxd.platform.machine import System, this_system

Thermal = Literal["nominal", "limited", "unknown"]


def read_thermal(system: System | None = None) -> Thermal:
    """As it is now, in some milliseconds; nothing is raised."""
    system = system or this_system()
    return parse_thermal(system.run(["pmset", "-g", "therm"])) if system.name == "darwin" else "unknown"


def parse_thermal(text: str) -> Thermal:
    """The state in what `pmset -g therm` prints: limits in per cent where there were any, else notes that say so."""
    limits = [int(found) for found in re.findall(r"(?:Speed|Scheduler)_Limit\s*=\s*(\d+)", text)]
    if limits:
        return "limited" if min(limits) < 100 else "nominal"
    if "No thermal warning level has been recorded" in text:
        return "nominal"
    level = re.search(r"thermal warning level\D*(\d+)", text, re.IGNORECASE)
    return "unknown" if level is None else "limited" if int(level[1]) else "nominal"
