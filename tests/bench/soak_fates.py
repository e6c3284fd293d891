"""What a client of the soak does next, and which ends are right for it. Pure: a random generator comes in."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

COMPLETE, LEAVE, HANG_UP, CANCEL, DEADLINE = "complete", "leave", "hang up", "cancel", "deadline"
SEVERAL, TWICE, DEAF, BAD, BURST = "several", "twice", "deaf", "bad", "burst"
WEIGHTS = {
    COMPLETE: 40,
    LEAVE: 10,
    HANG_UP: 5,
    CANCEL: 12,
    DEADLINE: 12,
    SEVERAL: 5,
    TWICE: 4,
    DEAF: 3,
    BAD: 8,
    BURST: 1,
}
"""How often each comes, of a hundred."""
BACKGROUND = 0.25
"""The share of requests of the lower priority."""
BURST_SIZE = 40
DEAF_TOKENS = 400
SHORTEST_S, LONGEST_S = 0.005, 4.0
"""Of a deadline: some are past at once, some fall into the queue, the prefill or a round."""

BAD_REQUESTS: tuple[dict[str, Any], ...] = (
    {"temperature": -1.0},
    {"top_p": 0.0},
    {"top_k": -1},
    {"max_tokens": 0},
    {"depth": 99},
    {"priority": "urgent"},
    {"n": 0},
    {"n": 1000},
    {"regex": "("},
    {"json_schema": "{"},
    {"acceptance": "block", "reproducible": True},
    {"acceptance": "hopeful"},
    {"logit_bias": {4_000_000_000: 1.0}},
    {"stop": ""},
    {"model": "nowhere-to-be-found"},
    {"system": "You are brief.", "raw": True},
)
REFUSALS = {"InvalidArgument", "NotFound"}
BUSY = "ResourceExhausted"
"""What anybody may hear while somebody floods."""
DONE = {"length", "stop"}


@dataclass(frozen=True)
class Fate:
    """One thing to do: which request of the table, how, and what is done to it."""

    kind: str
    at: int
    options: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    seconds: float = 0.0

    @property
    def right_ends(self) -> set[str]:
        """The outcomes that are no fault; the empty one is this side's leaving."""
        also = {
            LEAVE: {""},
            HANG_UP: {"", "Cancelled", "Unavailable"},
            CANCEL: {"cancelled"},
            DEADLINE: {"cancelled", "DeadlineExceeded", "NotAnswering"},  # the last: while it connects
            DEAF: {"", "cancelled"},
        }
        if self.kind == BAD:
            return REFUSALS
        return DONE | {BUSY} | also.get(self.kind, set())


def draw(rng: random.Random, table: int) -> Fate:
    """The next thing a client does with one of `table` requests."""
    [kind] = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    at = rng.randrange(table)
    options: dict[str, Any] = {"priority": "background"} if rng.random() < BACKGROUND else {}
    if kind == BAD:
        return Fate(kind, at, dict(rng.choice(BAD_REQUESTS)))
    if kind == SEVERAL:
        return Fate(kind, at, {**options, "n": rng.randint(2, 4)})
    if kind == DEADLINE:
        return Fate(kind, at, options, seconds=SHORTEST_S * (LONGEST_S / SHORTEST_S) ** rng.random())
    if kind == DEAF:
        return Fate(kind, at, options, seconds=rng.uniform(0.5, 3.0))
    return Fate(kind, at, options, events=rng.randint(0, 12))
