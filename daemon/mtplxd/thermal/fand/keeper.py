"""Makes the fans what they are to be, one attempt at a time, and believes only what it reads back.

It never waits: `step` makes an attempt when one is due and says when the next is. The clock is an argument. Who wants
fans held is `server`'s, how it is done the backend's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .fans import Backend, FanError, Reading

FIRST_RETRY_S, LONGEST_RETRY_S = 0.05, 1.0
TAKE_RETRY_S = 0.1
TAKE_S = 12.0
"""A system of the M3 and M4 lets go of its fans up to ten seconds after it was unlocked."""
WATCH_S = 1.0
"""How often held fans are looked at."""
SETTLE_S = (1.0, 4.0, 15.0)
"""Fans that were given back are looked at again after so long each: the system takes seconds to take over."""
FAILED_READS = 3
REFUSED_S = 30.0
"""Where fans could not be had, nobody is given a lease for so long."""


@dataclass(frozen=True)
class Outcome:
    """How it stands. `state`: automatic and held were read back; restoring and taking are on the way; unreadable.

    `attempts` are those of the change in work, or of the last one; `error` the last failure of it, in words.
    """

    state: str = "restoring"
    attempts: int = 0
    error: str = ""
    restored: int = 0
    """Times that fans were read back as automatic after they had not been."""


class Keeper:
    """Begins by restoring: whatever ran here before may have died."""

    def __init__(self, backend: Backend, log: Callable[[str], None]) -> None:
        self._backend, self._log = backend, log
        self._wanted = False
        self._next, self._began, self._wait = -math.inf, 0.0, FIRST_RETRY_S
        self._failed, self._settling = 0, 0
        self._touched = False
        self._refused_until = -math.inf
        self.outcome = Outcome()
        self.reading: Reading | None = None
        self.lost = ""
        """Why a lease had to end; whoever keeps leases reads and clears it."""

    @property
    def ready(self) -> bool:
        """Whether fans have been read as automatic once since the start."""
        return self.outcome.restored > 0

    @property
    def backend_name(self) -> str:
        return self._backend.name

    def refuses(self, now: float) -> bool:
        """Whether fans could not be had a short while ago."""
        return now < self._refused_until

    def want(self, held: bool, now: float) -> None:
        """From now on fans are to be held, or automatic. The next step begins with it."""
        if held == self._wanted:
            return
        self._wanted = held
        self._begin("taking" if held else "restoring", now)

    def check(self, now: float) -> None:
        """Fans that we ever touched are looked at anew: the machine woke up, or somebody doubts."""
        if self._touched and self.outcome.state in ("automatic", "held"):
            self._begin("taking" if self._wanted else "restoring", now)

    def step(self, now: float) -> float:
        """Makes an attempt if one is due. The moment of the next, infinity where only `want` changes anything."""
        if now >= self._next:
            self._next = self._attempt(now)
        return self._next

    def look(self) -> Reading | None:
        """Reads the fans for whoever asks, None where they cannot be read; changes nothing."""
        try:
            self.reading = self._backend.read()
        except FanError:
            return None
        return self.reading

    def _begin(self, state: str, now: float) -> None:
        self._next, self._began, self._wait = now, now, FIRST_RETRY_S
        self._settling = 0
        self._tell(state, attempts=0, error="")

    def _attempt(self, now: float) -> float:
        try:
            self.reading = self._backend.read()
            self._failed = 0
        except FanError as error:
            return self._fail(str(error), now)
        return self._take(self.reading, now) if self._wanted else self._give_back(self.reading, now)

    def _fail(self, error: str, now: float) -> float:
        """Fans that cannot be read must not be held; they are given back blindly, and again until they can be read."""
        self._failed += 1
        self.reading = None
        if self._failed < FAILED_READS:
            return now + FIRST_RETRY_S
        if self._wanted:
            self._wanted, self.lost = False, f"fans cannot be read ({error})"
        self._tell("unreadable", attempts=self.outcome.attempts + 1, error=error)
        self._restore(None)
        return self._later(now)

    def _take(self, reading: Reading, now: float) -> float:
        if reading.held:
            self._tell("held", error="")
            return now + WATCH_S
        if self.outcome.state == "held":  # somebody, or a wake, took them away
            self._begin("taking", now)
        if now - self._began >= TAKE_S or not any(fan.ours for fan in reading.fans):
            self.lost = self.outcome.error or "there is no fan that could be held"
            self._refused_until = now + REFUSED_S
            self.want(False, now)
            return self._give_back(reading, now)
        self._touched, error = True, ""
        try:
            self._backend.hold(reading)
        except FanError as problem:
            error = str(problem)
        self._tell("taking", attempts=self.outcome.attempts + 1, error=error)
        return now + TAKE_RETRY_S

    def _give_back(self, reading: Reading, now: float) -> float:
        if not reading.automatic:
            self._settling = 0
            error = self._restore(reading)
            self._tell("restoring", attempts=self.outcome.attempts + 1, error=error)
            return self._later(now)
        if self.outcome.state != "automatic":
            self._tell("automatic", restored=self.outcome.restored + 1)
            self._wait = FIRST_RETRY_S
        if not self._touched or self._settling == len(SETTLE_S):
            return math.inf  # whoever moves them from here on is somebody else
        self._settling += 1
        return now + SETTLE_S[self._settling - 1]

    def _restore(self, reading: Reading | None) -> str:
        self._touched = True
        try:
            self._backend.restore(reading)
        except FanError as error:
            return str(error)
        return ""

    def _later(self, now: float) -> float:
        wait, self._wait = self._wait, min(2 * self._wait, LONGEST_RETRY_S)
        return now + wait

    def _tell(self, state: str, **changes: object) -> None:
        before = self.outcome
        self.outcome = Outcome(**{**before.__dict__, "state": state, **changes})
        if state != before.state:
            tried = f" after {self.outcome.attempts} attempts" if state in ("automatic", "held") else ""
            why = f": {self.outcome.error}" if self.outcome.error else ""
            self._log(f"fans {state}{tried}{why}")
