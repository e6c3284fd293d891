"""The clock of leases: seconds that go on while the machine sleeps, and the share of them that it slept."""

from __future__ import annotations

import sys
import time

_WITH_SLEEP = time.CLOCK_MONOTONIC if sys.platform == "darwin" else time.CLOCK_BOOTTIME
_AWAKE = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds since the machine started, sleep included: CLOCK_MONOTONIC on macOS, CLOCK_BOOTTIME on Linux."""
    return time.clock_gettime(_WITH_SLEEP)


def slept() -> float:
    """Seconds that the machine has slept since it started."""
    return now() - time.clock_gettime(_AWAKE)
