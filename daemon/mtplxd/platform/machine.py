"""Facts of this machine as the system tells them: chip, memory, cores, versions, power. Raw where unknown.

Nothing is cached and nothing decided here; the memory bandwidth is measured only when somebody asks.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Power = Literal["normal", "low", "high", "unknown"]
_PMSET: dict[str, Power] = {"0": "normal", "1": "low", "2": "high"}
_COMMAND_S = 5.0
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Machine:
    """What a measurement must name to be compared. `memory` is in bytes and respects a container's limit.

    `macos` is empty elsewhere; `rosetta` says that this interpreter is translated from x86.
    """

    chip: str
    memory: int
    cores: int
    arch: str
    os: str
    macos: str
    rosetta: bool
    power: Power
    python: str


@dataclass(frozen=True)
class System:
    """Where the facts come from: programs and files of this system, or those of a test."""

    name: str
    run: Callable[[list[str]], str]
    read: Callable[[str], str]


def read_machine(system: System | None = None) -> Machine:
    """The facts, in some milliseconds. What cannot be read is empty, 0 or `unknown`; nothing is raised."""
    system = system or this_system()
    mac = system.name == "darwin"
    return Machine(
        chip=_mac_chip(system) if mac else _linux_chip(system),
        memory=_to_int(_sysctl(system, "hw.memsize")) if mac else _linux_memory(system),
        cores=_count_cores(),
        arch=platform.machine(),
        os=_mac_name(system) if mac else _linux_name(system),
        macos=_sysctl(system, "kern.osproductversion") if mac else "",
        rosetta=mac and _sysctl(system, "sysctl.proc_translated") == "1",
        power=parse_power(system.run(["pmset", "-g"])) if mac else "unknown",
        python=platform.python_version(),
    )


def parse_power(text: str) -> Power:
    """The power mode in what `pmset -g` prints."""
    found = re.search(r"^\s*(?:low)?powermode\s+(\d)", text, re.MULTILINE)
    return _PMSET.get(found[1], "unknown") if found else "unknown"


def measure_bandwidth(size: int = 256 * 1024 * 1024, seconds: float = 0.3) -> float:
    """Speed in GB/s at which one thread copies `size` bytes, read and write counted, best of `seconds`."""
    import numpy as np

    source = np.ones(size // 8)
    target = np.zeros_like(source)
    np.copyto(target, source)  # the pages exist before the clock runs
    best, spent = float("inf"), 0.0
    while spent < seconds:
        begin = time.perf_counter()
        np.copyto(target, source)
        took = time.perf_counter() - begin
        best, spent = min(best, took), spent + took
    return 2 * source.nbytes / best / 1e9


def this_system() -> System:
    """This machine's own programs and files; what cannot be run or read is empty."""
    return System(sys.platform, _run, _read)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _sysctl(system: System, name: str) -> str:
    return system.run(["sysctl", "-n", name]).strip()


def _mac_chip(system: System) -> str:
    return _sysctl(system, "machdep.cpu.brand_string") or _sysctl(system, "hw.model") or platform.machine()


def _mac_name(system: System) -> str:
    return f"macOS {_sysctl(system, 'kern.osproductversion')} ({_sysctl(system, 'kern.osversion')})"


def _linux_chip(system: System) -> str:
    text = system.read("/proc/cpuinfo")
    for label in ("model name", "Model", "Hardware"):
        if found := re.search(rf"^{label}\s*:\s*(\S.*)$", text, re.MULTILINE):
            return found[1].strip()
    return platform.processor() or platform.machine()


def _linux_memory(system: System) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", system.read("/proc/meminfo"), re.MULTILINE)
    total = int(found[1]) * 1024 if found else 0
    limits = [_to_int(system.read(path).strip()) for path in _CGROUPS]
    return min([size for size in (total, *limits) if size > 0], default=0)


def _linux_name(system: System) -> str:
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', system.read("/etc/os-release"), re.MULTILINE)
    kernel = system.read("/proc/sys/kernel/osrelease").strip()
    return " ".join(part for part in ("Linux", kernel, f"({found[1]})" if found else "") if part)


def _count_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def _to_int(text: str) -> int:
    return int(text) if text.isdecimal() else 0
