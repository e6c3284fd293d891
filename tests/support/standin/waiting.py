"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.005


def until(done: Callable[[], object]) -> None:
    """Looks until it is so; a test that waits in vain is ended by the suite's own limit."""
    while not done():
        time.sleep(POLL_S)
