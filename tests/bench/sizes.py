"""What a process takes of this machine by the system's count: resident bytes, seconds on a core. Judges nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """The resident set of a process. Raises where there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        if Path("/proc/self").exists():
            raise
        return 1024 * int(_ps("rss", pid))
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def core_seconds(pid: int) -> float:
    """Seconds that all threads of a process, those that have ended included, were on a core."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return parse_cpu_time(_ps("time", pid))
    fields = stat.read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def parse_cpu_time(text: str) -> float:
    """Seconds of `1-02:03:04`, `02:03:04` or `3:04.56`, as `ps` prints them."""
    days, _, rest = text.strip().rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = 60 * seconds + float(part)
    return 86400 * int(days or 0) + seconds


def _ps(what: str, pid: int) -> str:
    command = ["ps", "-o", f"{what}=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
