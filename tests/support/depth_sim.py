"""A batch that only has acceptance and seconds: plays rounds against a depth controller, by laws that a test states."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mtplxd.engine.depth import DepthController, DraftRoom, RoundSeen, RowSeen

Chances = Sequence[float]
"""By position, how likely a draft is accepted once the text reaches it."""
Texts = Callable[[int, int], Chances]
"""Gives a row's chances: takes its place in the batch and the number of the round."""
Curve = Callable[[int, int], float]
"""Seconds of a round: takes the rows and the drafts of the widest."""

DEPTH_MAX = 8
CODE, CHAT, PROSE, DEAD = (
    (0.92, 0.9, 0.88, 0.86, 0.84, 0.82, 0.8, 0.8),
    (0.72, 0.6, 0.52, 0.45, 0.4, 0.4, 0.4, 0.4),
    (0.5, 0.35, 0.25, 0.2, 0.2, 0.2, 0.2, 0.2),
    (0.02,) * 8,
)


def measured(rows: int, width: int) -> float:
    """As SmolLM2 takes on two cores: [1, 1] 92 ms … [8, 4] 203 ms, 8 ms a step of drafting."""
    grid = {1: (92, 100, 103, 106), 2: (95, 117, 124, 131), 4: (117, 125, 136, 146), 8: (135, 153, 178, 203)}
    line = grid[rows]
    verify = line[width] if width < 4 else line[3] + (line[3] - line[2]) * (width - 3)
    return 1e-3 * (verify + 8 * width)


def flat(rows: int, width: int) -> float:
    """As on a GPU that weights alone keep busy."""
    return 1e-3 * (20 + 0.05 * rows * (width + 1) + 1.0 * width)


def steep(rows: int, width: int) -> float:
    """As where a verify costs nearly as much as its tokens one by one."""
    return 1e-3 * (10 + 20 * rows * (width + 1) + 5 * width)


CURVES: dict[str, Curve] = {"measured": measured, "flat": flat, "steep": steep}


@dataclass
class Played:
    """What a run came to."""

    tokens: int = 0
    seconds: float = 0.0
    expected: float = 0.0
    widths: list[int] = field(default_factory=list)

    @property
    def switches(self) -> int:
        """How often a round was as wide as the one before it was not."""
        return sum(a != b for a, b in zip(self.widths, self.widths[1:], strict=False))


@dataclass
class Machine:
    """Seconds as a clock would show them: the curve, noise, stalls, and cold calls of each shape."""

    curve: Curve
    random: random.Random
    noise: float = 0.0
    stalls: float = 0.0
    cold: float = 0.0
    calls: dict[tuple[int, int], int] = field(default_factory=dict)

    def seconds(self, rows: int, width: int) -> float:
        calls = self.calls[rows, width] = self.calls.get((rows, width), 0) + 1
        spent = self.curve(rows, width) * (1 + self.noise * (2 * self.random.random() - 1))
        if self.random.random() < self.stalls:
            spent *= 10
        return max(spent, self.cold) if calls == 1 else spent


def play(
    controller: DepthController,
    texts: Texts,
    machine: Machine,
    rows: int,
    rounds: int,
    first: int = 0,
    room: Callable[[int, int], DraftRoom] | None = None,
) -> Played:
    """Plays rounds `first` … `first + rounds`; `expected` adds up what the chosen depths are worth, without luck."""
    played = Played()
    for at in range(first, first + rounds):
        rooms = [room(row, at) if room else DraftRoom(str(row), DEPTH_MAX) for row in range(rows)]
        depths = controller.choose(rooms)
        seen = []
        for row, depth in enumerate(depths):
            accepted = 0
            while accepted < depth and machine.random.random() < texts(row, at)[accepted]:
                accepted += 1
            seen.append(RowSeen(rooms[row].key, depth, depth, accepted))
            played.tokens += accepted + 1
            played.expected += tokens(texts(row, at), depth)
        width = max(depths)
        controller.observe(RoundSeen(tuple(seen), machine.seconds(rows, width)))
        played.seconds += machine.curve(rows, width)
        played.widths.append(width)
    return played


def tokens(chances: Chances, depth: int) -> float:
    """Tokens a round is expected to commit."""
    alive = total = 1.0
    for chance in chances[:depth]:
        alive *= chance
        total += alive
    return total


def best_rate(texts: Texts, curve: Curve, rows: int, at: int = 0) -> float:
    """Tokens a second of the best fixed depth."""
    return max(rate(texts, curve, rows, depth, at) for depth in range(DEPTH_MAX + 1))


def rate(texts: Texts, curve: Curve, rows: int, depth: int, at: int = 0) -> float:
    """Tokens a second at a depth."""
    return sum(tokens(texts(row, at), depth) for row in range(rows)) / curve(rows, depth)
