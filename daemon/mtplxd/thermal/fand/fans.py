"""What a fan is and what a backend can do with fans: the one seam between the keeper and the hardware."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class FanError(Exception):
    """A read or write that the system refused, or that failed; says which and how."""


@dataclass(frozen=True)
class Fan:
    """One fan as read: speeds in rpm (0 = unknown). `ours` is False where another program had it before us, which
    is then left alone. `held` means manual and told to run at its maximum.
    """

    rpm: float
    target: float
    min: float
    max: float
    automatic: bool
    held: bool = False
    ours: bool = True


@dataclass(frozen=True)
class Reading:
    """All fans at one moment. `unlocked` says that the system's own control is switched off for diagnosis."""

    fans: tuple[Fan, ...]
    unlocked: bool = False

    @property
    def automatic(self) -> bool:
        """The system controls every fan that we may touch."""
        return not self.unlocked and all(fan.automatic for fan in self.fans if fan.ours)

    @property
    def held(self) -> bool:
        """There is a fan that we may touch, and all of those are held."""
        ours = [fan for fan in self.fans if fan.ours]
        return bool(ours) and all(fan.held for fan in ours)


class Backend(Protocol):
    """One attempt a call, none of which waits; whether it worked is told by the next `read` alone."""

    name: str

    def read(self) -> Reading:
        """All fans. Raises FanError."""

    def hold(self, reading: Reading) -> None:
        """Writes what is missing for every fan to be held. Raises FanError after trying them all."""

    def restore(self, reading: Reading | None) -> None:
        """Writes what is missing for every fan to be automatic; without a reading, everything. Raises likewise."""
