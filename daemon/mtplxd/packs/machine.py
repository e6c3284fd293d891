"""What of this machine decides whether a model fits, asked without MLX: its memory, and how halves compute on it."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_GPU_BUILDS = ("mlx-cuda", "mlx-cuda-12", "mlx-cuda-13")


def total_memory() -> int:
    """Bytes that processes here may have together: the machine's, or the control group's limit below it."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no such group, or it says `max`
        return machine


def widens_halves() -> bool:
    """Whether half-precision weights compute in float32: on MLX's CPU build, which Linux has unless told otherwise."""
    return sys.platform != "darwin" and not any(map(_is_installed, _GPU_BUILDS))


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
