"""How a thread steps behind those that somebody waits for. Says nothing about which threads should."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable

NICE = 15
"""On Linux: far behind a thread of niceness 0, yet never starved."""
QOS_UTILITY = 0x11
"""On macOS: work with a purpose that nobody watches; efficiency cores, throttled disk."""


def step_back(system: str = sys.platform, load: Callable[[], ctypes.CDLL] | None = None) -> bool:
    """Lowers the priority of the thread that calls; False where the system does not let it, which hurts nobody."""
    with contextlib.suppress(OSError, AttributeError):
        if system == "darwin":
            library = load() if load else ctypes.CDLL(None)
            return int(library.pthread_set_qos_class_self_np(QOS_UTILITY, 0)) == 0
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)  # of this thread alone, on Linux
        return True
    return False
