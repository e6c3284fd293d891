"""Lets a thread of this process step back behind those that decode. What it does is not known here."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

NICE = 10
"""How far behind the others such a thread stands, on the scale of `nice`."""


def lower_priority() -> None:
    """From now on the calling thread gets the processor after others that want it, where the system can say so of a
    thread: elsewhere it would be said of the whole process, so nothing is."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
