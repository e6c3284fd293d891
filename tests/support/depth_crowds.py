"""Crowds that only have acceptance and seconds: texts of one kind that come one after the other and leave as they end.

What they reach is compared with what the same crowd reaches at a fixed depth, as `tests/bench/clients_modes.py` does
with a real model.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

from mtplxd.engine.depth import DepthController, DraftRoom, RoundSeen, RowSeen
from support.depth_sim import DEPTH_MAX, Machine

GRID = {
    1: (100, 119, 142, 154, 162),
    2: (112, 137, 153, 166, 190),
    4: (121, 145, 188, 182, 225),
    8: (144, 180, 240, 262, 310),
}
"""Milliseconds of a round of SmolLM2 on two cores by rows, at depths 0 to 4: more drafts are not always dearer."""
SUITES = {
    "chat": (0.5, 0.45, 0.4, 0.35, 0.3, 0.3, 0.3, 0.3),
    "code": (0.62, 0.52, 0.47, 0.42, 0.4, 0.4, 0.4, 0.4),
    "prose": (0.42, 0.36, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3),
}
"""What its trained head reaches of positions that come up, by kind of text."""
APART = 0.08
"""Standard deviation of texts of one kind."""
READING_S = 0.15
"""A prompt is read between two rounds."""


def round_seconds(rows: int, width: int) -> float:
    """The grid, with straight lines between its rows and beyond its columns."""
    if rows in GRID:
        line = GRID[rows]
        beyond = max(0, width - len(line) + 1)
        return 1e-3 * (line[min(width, len(line) - 1)] + beyond * (14 + 6 * rows))
    low, high = next(pair for pair in pairwise(GRID) if pair[0] < rows < pair[1])
    part = (rows - low) / (high - low)
    return (1 - part) * round_seconds(low, width) + part * round_seconds(high, width)


@dataclass
class Crowd:
    """Texts of so many tokens each, drawn anew for every crowd of one `random`."""

    kind: str
    clients: int
    random: random.Random
    tokens: int = 96
    shapes: list[tuple[int, int]] = field(default_factory=list)

    def play(self, controller: DepthController, machine: Machine, depth: int | None = None) -> float:
        """Tokens a second of all together, at a fixed depth or at the controller's choice."""
        chances = [self._text() for _ in range(self.clients)]
        left: dict[int, int] = {}
        waiting, spent, apart = list(range(self.clients)), 0.0, True
        while waiting or left:
            if waiting:
                left[waiting.pop(0)] = self.tokens
                spent, apart = spent + READING_S, True
            rows = list(left)
            rooms = [DraftRoom(str(row), max(0, min(DEPTH_MAX, left[row] - 1)), depth) for row in rows]
            seen = [
                self._draft(rooms[at], many, chances[row])
                for at, (row, many) in enumerate(zip(rows, controller.choose(rooms), strict=True))
            ]
            width = max(one.drafted for one in seen)
            self.shapes.append((len(rows), width))
            seconds = machine.seconds(len(rows), width)
            controller.observe(RoundSeen(tuple(seen), None if apart else seconds))
            spent, apart = spent + round_seconds(len(rows), width), False
            for row, one in zip(rows, seen, strict=True):
                left[row] -= one.accepted + 1
                if left[row] <= 0:
                    del left[row]
                    controller.forget(str(row))
                    apart = True
        return self.clients * self.tokens / spent

    def _text(self) -> list[float]:
        more = self.random.gauss(0, APART)
        return [min(0.97, max(0.02, chance + more)) for chance in SUITES[self.kind]]

    def _draft(self, room: DraftRoom, count: int, chances: list[float]) -> RowSeen:
        accepted = 0
        while accepted < count and self.random.random() < chances[accepted]:
            accepted += 1
        return RowSeen(room.key, count, count, accepted)
