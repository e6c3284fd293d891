"""Keeps work that comes in parts within a time, so that others go on in between. Measures; does none of the work."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


class Pace:
    """So many seconds from now on. A part is taken to last as long as the one before it."""

    def __init__(self, seconds: float, clock: Clock = time.perf_counter) -> None:
        self._clock, self._last = clock, clock()
        self._end = self._last + seconds

    def over(self) -> bool:
        """Asked after each part: whether another one would end too late."""
        now = self._clock()
        part, self._last = now - self._last, now
        return now + part > self._end
