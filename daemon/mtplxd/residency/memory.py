"""Readings of the machine's and this process's memory, in bytes. It decides nothing.

Linux: /proc and the control group's limit. macOS: sysctl, task_info and vm_stat.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from mtplxd.packs.machine import total_memory

_CGROUP = Path("/sys/fs/cgroup")
_FOOTPRINT = ("RssAnon", "RssShmem", "VmSwap")
_TASK_VM_INFO, _FOOTPRINT_OFFSET = 22, 144
_RECLAIMABLE = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")


class SystemMemory:
    """Live readings; `total` is taken once."""

    def __init__(self) -> None:
        self.total = total_memory()

    def free(self) -> int:
        """What could be allocated now without pushing others out."""
        return _free_macos() if sys.platform == "darwin" else _free_linux()

    def cheap_free(self) -> int | None:
        """`free` where that is a matter of reading a file; None on macOS, whose kernel tells its own level."""
        return None if sys.platform == "darwin" else _free_linux()

    def used(self) -> int:
        """This process as the system sees it: what only it keeps in memory, swapped or compressed included.

        macOS: the physical footprint; Linux: resident memory that is no file's, and what is in swap.
        """
        return _used_macos() if sys.platform == "darwin" else _used_linux()


def _free_linux() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
            break
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, current = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is None or current is None:
        return free
    return min(free, max(0, limit - current + _reclaimable_cache()))


def _used_linux() -> int:
    return parse_footprint(Path("/proc/self/status").read_text())


def parse_footprint(text: str) -> int:
    """Bytes of `/proc/PID/status` that no file gives back: what macOS calls a footprint. Pages of libraries are not."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return 1024 * sum(int(fields[name].split()[0]) for name in _FOOTPRINT if name in fields)


def _reclaimable_cache() -> int:
    """File cache that the control group counts as used and would give up."""
    for line in (_CGROUP / "memory.stat").read_text().splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _number(path: Path) -> int | None:
    """A control group's number; None where there is no group or it says `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _free_macos() -> int:
    text = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5, check=True).stdout
    return parse_vm_stat(text)


def parse_vm_stat(text: str) -> int:
    """Free and reclaimable bytes of `vm_stat`'s output."""
    head, *lines = text.splitlines()
    page = int(head.split("page size of ")[1].split()[0])
    counts = dict(line.split(":", 1) for line in lines if ":" in line)
    return page * sum(int(counts[name].strip().rstrip(".")) for name in _RECLAIMABLE if name in counts)


def _used_macos() -> int:
    library = ctypes.CDLL(None)
    words = ctypes.c_uint32((_FOOTPRINT_OFFSET + 8) // 4)
    info = (ctypes.c_uint64 * ((_FOOTPRINT_OFFSET + 8) // 8))()
    task = ctypes.c_uint32.in_dll(library, "mach_task_self_")
    failed = library.task_info(task, _TASK_VM_INFO, ctypes.byref(info), ctypes.byref(words))
    return 0 if failed else int(info[_FOOTPRINT_OFFSET // 8])
