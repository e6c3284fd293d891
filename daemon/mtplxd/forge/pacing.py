"""How a long step breathes: it tells where it is, waits while somebody says why, and ends when it was cancelled.

Owns no policy: what is waited for (a battery) and who cancels is the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mtplxd.errors import Cancelled

Tell = Callable[[str, int, int, str], None]
"""Takes stage, done, total and a line of detail."""
IsCancelled = Callable[[], bool]
ShouldWait = Callable[[], str]
"""Gives why work must wait, in a few words, empty to go on."""
WAIT_S = 0.5


def never() -> bool:
    """Nobody cancels."""
    return False


def at_once() -> str:
    """Nothing is waited for."""
    return ""


@dataclass(frozen=True)
class Pace:
    """Who is told, who may cancel, and what is waited for."""

    tell: Tell
    cancelled: IsCancelled = never
    should_wait: ShouldWait = at_once
    sleep: Callable[[float], None] = time.sleep

    def breathe(self, stage: str, done: int, total: int) -> None:
        """Returns when work may go on. Raises Cancelled; a wait is told once for each reason."""
        told = ""
        while True:
            if self.cancelled():
                raise Cancelled(f"the {stage} step was cancelled", None, "resume the run to go on")
            reason = self.should_wait()
            if not reason:
                return
            if reason != told:
                self.tell(stage, done, total, reason)
                told = reason
            self.sleep(WAIT_S)
