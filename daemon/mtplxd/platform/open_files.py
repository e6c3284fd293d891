"""How many files this process may open: as many as its service asks for, whatever a library would like instead.

A terminal on macOS starts a program with 256; a service's own files ask for `WANTED`. mlx-lm sets 2,048 and 4,096 for
the whole process when it is imported: fewer than the service asked for, for good, and an error where there were less.
"""

from __future__ import annotations

import resource
from typing import Any

WANTED = 8192
_set: Any = resource.setrlimit


def allow_open_files(wanted: int = WANTED) -> int:
    """Raises the limit to `wanted`, or to what the system lets this user have; returns what holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        _set(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):  # macOS: above kern.maxfilesperproc
        return soft
    return most


def keep_open_files() -> None:
    """From now on no library changes the limit of open files of this process; its other limits stay anyone's."""
    resource.setrlimit = _set_others


def _set_others(kind: int, limits: tuple[int, int]) -> None:
    if kind != resource.RLIMIT_NOFILE:
        _set(kind, limits)
