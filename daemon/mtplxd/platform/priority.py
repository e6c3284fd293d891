"""How a thread or a process steps back behind those that somebody waits for. Says nothing about which should.

On Linux none does: a thread of low priority that is not let run while it has the interpreter's lock stops all others
(at niceness 15, on a machine with other work, rounds stood still for seconds). There a thread only rests by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

QOS_UTILITY = 0x11
"""On macOS: work with a purpose that nobody watches; efficiency cores, throttled disk, yet never starved."""


NICENESS = 19
_OOM = Path("/proc/self/oom_score_adj")
_FIRST_TO_GO = "800"


def step_back(system: str = sys.platform, load: Callable[[], ctypes.CDLL] | None = None) -> bool:
    """Lowers the priority of the thread that calls; False where that is not done."""
    if system != "darwin":
        return False
    with contextlib.suppress(OSError, AttributeError):
        library = load() if load else ctypes.CDLL(None)
        return int(library.pthread_set_qos_class_self_np(QOS_UTILITY, 0)) == 0
    return False


def step_back_process(oom: Path = _OOM) -> None:
    """This whole process computes with what others leave, and is the first to be ended where memory runs out."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(OSError):  # there is no such file on macOS
        if oom.exists():
            oom.write_text(_FIRST_TO_GO)


def background_threads(cores: int) -> int:
    """How many threads a matrix product in the background may have: half of the cores."""
    return max(1, cores // 2)
