"""Where a measurement was made: the facts without which its numbers compare with nothing. Gathers, judges nothing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from mtplxd.platform.machine import Machine, measure_bandwidth, read_machine
from mtplxd.platform.thermal import Thermal, read_thermal

NO_FANS = "not-available"
"""The fan mode where nothing here could move a fan."""
BANDWIDTH_BYTES = 64 << 20
"""Small enough beside a model in memory, larger than caches of one core."""


@dataclass(frozen=True, slots=True)
class Place:
    """The machine, its measured memory bandwidth (GB/s, 0 = not measured), the version of MLX, how hot the machine is
    and who had its fans.
    """

    machine: Machine
    bandwidth_gb_s: float
    mlx: str
    thermal: Thermal = "unknown"
    fan_mode: str = NO_FANS


def read_place(bandwidth_gb_s: float = 0.0, fan_mode: str = NO_FANS) -> Place:
    """The facts as they are now; runs a program on macOS, so never on an event loop. Who has the fans, callers know."""
    return Place(read_machine(), bandwidth_gb_s, mlx_version(), read_thermal(), fan_mode)


def measure_memory() -> float:
    """The memory bandwidth in GB/s, in about half a second; alone, it is part of the measurement."""
    return measure_bandwidth(BANDWIDTH_BYTES)


def mlx_version() -> str:
    """The installed MLX's, empty where there is none."""
    try:
        return version("mlx")
    except PackageNotFoundError:
        return ""
