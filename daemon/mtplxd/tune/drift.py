"""Whether the machine held its speed: plain decoding of one prompt at a run's start, middle and end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

THROTTLED = 0.10
"""From so much of a change on a run decides nothing."""


@dataclass(frozen=True, slots=True)
class Point:
    """Plain decoding, tokens a second by its median round, so many seconds after the run began."""

    at_s: float
    tok_s: float


@dataclass(frozen=True, slots=True)
class Drift:
    """The points in order. A machine that got faster was disturbed as much as one that got slower."""

    points: tuple[Point, ...]

    @property
    def change(self) -> float:
        """The point furthest from the first against it, as a signed share: -0.1 is a tenth slower."""
        shares = (
            [point.tok_s / self.points[0].tok_s - 1 for point in self.points[1:]] if self.measured else []
        )
        return max(shares, key=abs, default=0.0)

    @property
    def held_s(self) -> float:
        """Seconds after which the speed was still the first one's, as far as anybody looked."""
        held = 0.0
        for point in self.points if self.measured else ():
            if abs(point.tok_s / self.points[0].tok_s - 1) > THROTTLED:
                break
            held = point.at_s
        return held

    @property
    def throttled(self) -> bool:
        """Whether what was measured early compares with what was measured late."""
        return abs(self.change) > THROTTLED

    @property
    def measured(self) -> bool:
        """Whether there is a first point to compare with."""
        return bool(self.points) and self.points[0].tok_s > 0


def drift_of(speeds: Sequence[float], times: Sequence[float]) -> Drift:
    """Points of tokens a second and seconds since the begin."""
    return Drift(tuple(Point(at_s, tok_s) for at_s, tok_s in zip(times, speeds, strict=True)))
