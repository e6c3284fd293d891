"""Which run of the machine this is: what was there before a reboot did not crash, the machine went."""

from __future__ import annotations

import subprocess
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")
_MAC = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
_LIMIT_S = 5.0


def boot_id() -> str:
    """The system's own name of this boot; empty where it does not tell."""
    try:
        return _LINUX.read_text().strip()
    except OSError:
        pass
    try:
        said = subprocess.run(_MAC, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip()
