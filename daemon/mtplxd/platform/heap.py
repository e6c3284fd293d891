"""How the C library gives memory back. Says nothing about how much is used.

glibc raises the size from which a block is mapped by itself to that of the largest block freed so far, up to 32 MiB.
What a long prompt needs for a moment then stays in the heap, in holes: a daemon's size goes up and down in steps of
hundreds of MB. With a fixed threshold every large array is unmapped as soon as it is freed. Smaller ones stay in the
heap; what lies between those still in use goes back when `give_back_freed` is called, and only then.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

M_MMAP_THRESHOLD = -3
MAPPED_FROM = 1 << 20
"""Bytes; mapping and unmapping a block of this size costs far less than filling it."""


def give_back_large_blocks(
    system: str = sys.platform, load: Callable[[], ctypes.CDLL] = lambda: ctypes.CDLL(None)
) -> bool:
    """Has every block of MAPPED_FROM bytes or more unmapped when it is freed; False where there is no such setting."""
    if system != "linux":
        return False
    try:
        return bool(load().mallopt(M_MMAP_THRESHOLD, MAPPED_FROM))
    except (OSError, AttributeError):  # another C library
        return False


def give_back_freed(load: Callable[[], ctypes.CDLL] = lambda: ctypes.CDLL(None)) -> None:
    """Gives freed memory back to the system where the C library keeps it (glibc); elsewhere nothing is kept.

    Walks the whole heap, milliseconds for some hundreds of MB, while others who allocate wait.
    """
    trim = getattr(load(), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Leftovers:
    """What work leaves freed between what it keeps goes back while there is work, and once more after it.

    A daemon that serves many at once keeps blocks of prompts for long and frees others beside them all the time: left
    alone, eight busy clients made one grow by 15 MB a minute.
    """

    def __init__(self, working: Callable[[], bool], give_back: Callable[[], None] = give_back_freed) -> None:
        self._working, self._give_back = working, give_back
        self._worked = False

    def look(self) -> None:
        """Called now and then, from any one thread; an idle process is left alone."""
        working = self._working()
        if working or self._worked:
            self._give_back()
        self._worked = working
