"""How a thread steps back behind those that somebody waits for. Says nothing about which threads should.

On Linux none does: a thread of low priority that is not let run while it has the interpreter's lock stops all others
(at niceness 15, on a machine with other work, rounds stood still for seconds). There a thread only rests by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable

QOS_UTILITY = 0x11
"""On macOS: work with a purpose that nobody watches; efficiency cores, throttled disk, yet never starved."""


def step_back(system: str = sys.platform, load: Callable[[], ctypes.CDLL] | None = None) -> bool:
    """Lowers the priority of the thread that calls; False where that is not done."""
    if system != "darwin":
        return False
    with contextlib.suppress(OSError, AttributeError):
        library = load() if load else ctypes.CDLL(None)
        return int(library.pthread_set_qos_class_self_np(QOS_UTILITY, 0)) == 0
    return False
