"""When fans should be held, and for what. Pure: clock, work and heat are arguments; nothing is asked of a helper here.

`auto` leaves fans to the system but for measurements, `smart` holds them while text is made and until the machine has
cooled, `max` as long as the daemon lives. Whatever is at work loses its claim when the model does not go on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mtplxd.platform.thermal import Thermal

Mode = Literal["auto", "smart", "max"]
MODES: tuple[Mode, ...] = ("auto", "smart", "max")
STUCK_S = 180.0
"""Work whose model has not gone on for so long holds no fans."""
LINGER_S = 20.0
"""Between two requests of one conversation fans stay up."""
COOL_S = 120.0
"""The longest that fans stay up for a machine that is still hot."""
_COOL: tuple[Thermal, ...] = ("nominal", "unknown")


@dataclass(frozen=True)
class Work:
    """What the daemon does at one moment. `busy`: requests or a call have the engine or wait for it; the engine last
    went on `beat_age_s` ago.
    """

    busy: bool = False
    beat_age_s: float = 0.0


@dataclass(frozen=True)
class Wish:
    """Whether fans should be held, and the reason in words for whoever looks."""

    hold: bool
    reason: str = ""


def fan_mode(text: str) -> Mode:
    """The mode that a checked setting names."""
    return next(mode for mode in MODES if mode == text)


class Policy:
    """Remembers when there was work last; asked every second or so while it matters."""

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self._worked = -math.inf

    def decide(self, work: Work, claims: tuple[str, ...], heat: Thermal, now: float) -> Wish:
        """`claims` name the measurements in work; each is a client's or the daemon's own."""
        if self.mode == "max":
            return Wish(True, "the mode is max")
        stuck = work.beat_age_s >= STUCK_S and (work.busy or bool(claims))
        if stuck:
            return Wish(False, f"nothing has gone on for {work.beat_age_s:.0f} s")
        if claims:
            return Wish(True, claims[0])
        return self._decide_smart(work, heat, now) if self.mode == "smart" else Wish(False)

    def _decide_smart(self, work: Work, heat: Thermal, now: float) -> Wish:
        if work.busy:
            self._worked = now
            return Wish(True, "text is made")
        since = now - self._worked
        if since < LINGER_S:
            return Wish(True, "text was made a moment ago")
        if heat not in _COOL and since < COOL_S:
            return Wish(True, f"the machine is still hot ({heat})")
        return Wish(False)
