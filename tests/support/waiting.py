"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S, PIECE_S = 60.0, 0.01


def until(there: Callable[[], object]) -> None:
    """Returns once it is so; AssertionError where it never is. In pieces: a machine that stood still costs one."""
    for _ in range(int(PATIENCE_S / PIECE_S)):
        if there():
            return
        time.sleep(PIECE_S)
    raise AssertionError("waited in vain")
