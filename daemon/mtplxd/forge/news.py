"""How far a build is as others hear of it: which step, how much of it, how long it will take. Pure but for its clock.

Steps tell as often as they like; what is heard is not more than some a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

EVERY_S = 0.1
SEEN_SHARE = 0.02
"""Of a stage, before anything is said of the time that is left."""


@dataclass(frozen=True)
class Told:
    """One piece of news of a stage of a step. `progress` is the share of it that is done; `eta_s` 0 where nothing is
    known.
    """

    step: str
    stage: str = ""
    done: int = 0
    total: int = 0
    eta_s: float = 0.0
    message: str = ""

    @property
    def progress(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0


class News:
    """Turns what steps tell into news."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stage: tuple[str, str] | None = None
        self._began, self._first, self._spoke = 0.0, 0, 0.0

    def take(self, step: str, stage: str, done: int, total: int, detail: str) -> Told | None:
        """News, or None where the last was a moment ago."""
        now = self._clock()
        fresh = (step, stage) != self._stage
        if fresh:
            self._stage, self._began, self._first = (step, stage), now, done
        elif done < total and now - self._spoke < EVERY_S:
            return None
        self._spoke = now
        return Told(step, stage, done, total, self._left(now, done, total), detail)

    def _left(self, now: float, done: int, total: int) -> float:
        made = done - self._first
        if not total or made <= 0 or made < SEEN_SHARE * total:
            return 0.0
        return (total - done) * (now - self._began) / made
