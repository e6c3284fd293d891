"""Who holds the fans and until when. Pure: the clock is an argument, what holding means is `keeper`'s.

A holder is a connection. Its lease ends when its time is up, when it gives it back, and when the connection does.
"""

from __future__ import annotations

RATE_BURST, RATE_S = 20, 0.1
"""So many renewals at once, then one in this many seconds."""


class Leases:
    """The leases of all holders, each with the moment it ends (seconds of the caller's clock)."""

    def __init__(self) -> None:
        self._ends: dict[int, float] = {}

    def hold(self, holder: int, seconds: float, now: float) -> None:
        """Takes or renews a lease; a renewal may also shorten it."""
        self._ends[holder] = now + seconds

    def release(self, holder: int) -> bool:
        """Ends a lease; whether there was one."""
        return self._ends.pop(holder, None) is not None

    def drop(self) -> None:
        """Ends all of them."""
        self._ends.clear()

    def expire(self, now: float) -> list[int]:
        """Ends those whose time is up, and names their holders. An end is exclusive: at that moment nothing is held."""
        over = [holder for holder, end in self._ends.items() if end <= now]
        for holder in over:
            del self._ends[holder]
        return over

    @property
    def held(self) -> bool:
        """Whether anybody holds; true to the moment only after `expire`."""
        return bool(self._ends)

    @property
    def holders(self) -> tuple[int, ...]:
        return tuple(self._ends)

    def left(self, now: float) -> float | None:
        """Seconds until the last one ends, None without one."""
        return max(self._ends.values()) - now if self._ends else None

    def next_end(self) -> float | None:
        """The moment the first one ends."""
        return min(self._ends.values(), default=None)


class Rate:
    """A bucket of renewals that one connection may still make."""

    def __init__(self, now: float) -> None:
        self._level, self._at = float(RATE_BURST), now

    def take(self, now: float) -> bool:
        """Takes one; False where none is left."""
        self._level = min(float(RATE_BURST), self._level + max(0.0, now - self._at) / RATE_S)
        self._at = now
        if self._level < 1:
            return False
        self._level -= 1
        return True
