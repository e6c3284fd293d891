"""How the writer keeps out of the way of those who decode: little work, then a long pause. Pure but for the wait."""

from __future__ import annotations

from collections.abc import Callable

DUTY = 0.15
"""Share of its time that it works while somebody decodes."""
LONGEST_S = 0.25


def pause_after(worked: float, duty: float = DUTY) -> float:
    """Seconds to rest after so many seconds of work."""
    return min(LONGEST_S, worked * (1 / duty - 1))


class Pace:
    """`busy` says whether somebody decodes, `wait` rests up to so many seconds; one thread breathes by it."""

    def __init__(
        self, busy: Callable[[], bool], wait: Callable[[float], object], clock: Callable[[], float]
    ) -> None:
        self._busy, self._wait, self._clock = busy, wait, clock
        self._since = clock()

    def begin(self) -> None:
        """Work begins now."""
        self._since = self._clock()

    def breathe(self) -> None:
        """Between two pieces of work."""
        if self._busy():
            self._wait(pause_after(self._clock() - self._since))
        self._since = self._clock()
