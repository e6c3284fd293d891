"""How short of memory the system says it is, raw: the kernel's own level on macOS, shares of stalled time on Linux.

It decides nothing; what a reading is worth, and what is given back for it, is residency's.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass

from mtplxd.platform.machine import System, this_system

LEVEL = "kern.memorystatus_vm_pressure_level"
_EVERYBODYS = "/proc/pressure/memory"
_OWN_GROUP = "/proc/self/cgroup"
_STALL = re.compile(r"^(some|full) avg10=(\d+(?:\.\d+)?)", re.MULTILINE)


@dataclass(frozen=True)
class Pressure:
    """`kernel` is macOS's level: 1 normal, 2 warn, 4 critical. `some` and `full` are the percent of the last ten
    seconds in which some, or all, work of the machine or of our control group waited for memory (Linux). None where
    the system does not tell.
    """

    kernel: int | None = None
    some: float | None = None
    full: float | None = None

    @property
    def words(self) -> str:
        """What was read, for people; empty where nothing was."""
        if self.kernel is not None:
            return f"kernel level {self.kernel}"
        if self.some is None:
            return ""
        return f"{self.some:.1f} % of the time stalled for memory, wholly {self.full or 0.0:.1f} %"


def read_pressure(
    system: System | None = None, load: Callable[[], object] = lambda: ctypes.CDLL(None)
) -> Pressure:
    """As it is now, in some microseconds; nothing is raised."""
    system = system or this_system()
    if system.name == "darwin":
        return Pressure(kernel=read_sysctl(LEVEL, load))
    texts = [system.read(_EVERYBODYS), system.read(f"{own_group(system)}/memory.pressure")]
    found = [stalls for stalls in map(parse_stalls, texts) if stalls]
    if not found:
        return Pressure()
    return Pressure(
        some=max(stalls.get("some", 0.0) for stalls in found),
        full=max(stalls.get("full", 0.0) for stalls in found),
    )


def parse_stalls(text: str) -> dict[str, float]:
    """Percent of the last ten seconds by kind, from a pressure file of Linux."""
    return {kind: float(share) for kind, share in _STALL.findall(text)}


def own_group(system: System) -> str:
    """The folder of this process's control group (version 2)."""
    found = re.search(r"^0::(/\S*)$", system.read(_OWN_GROUP), re.MULTILINE)
    return "/sys/fs/cgroup" + (found[1].rstrip("/") if found else "")


def read_sysctl(name: str, load: Callable[[], object] = lambda: ctypes.CDLL(None)) -> int | None:
    """A 32-bit number of the kernel's; None where there is no such name, or no sysctl."""
    by_name = getattr(load(), "sysctlbyname", None)
    if by_name is None:
        return None
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    failed = by_name(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return None if failed else value.value
