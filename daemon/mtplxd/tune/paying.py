"""Whether drafting pays on a model's traffic, and from which acceptance on. Pure: reads a depth controller's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_REACHED = 16.0
"""Drafts that a position must have seen before its acceptance is told."""
_STEPS = 40


@dataclass(frozen=True, slots=True)
class Paying:
    """The drafting depth that comes to most on one row alone: its tokens a second over plain decoding's, what share of
    its drafts is accepted, once those before are, and what share of them must be for it to pay.

    Acceptance differs by position: both shares are the one that, at every position alike, gives as many tokens.
    """

    depth: int
    ratio: float
    acceptance: float
    break_even: float

    @property
    def pays(self) -> bool:
        """Whether drafting is faster here than not to."""
        return self.ratio > 1.0


def judge_paying(state: Mapping[str, Any]) -> Paying | None:
    """What a controller's state comes to; None while it knows too little."""
    chances = _chances(state)
    seconds = _seconds(state)
    plain = seconds.get(0, 0.0)
    found = [
        _pay(depth, tokens_of(chances[:depth]), seconds[depth] / plain)
        for depth in sorted(seconds)
        if plain and 0 < depth <= len(chances)
    ]
    return max(found, key=lambda one: one.ratio, default=None)


def tokens_of(chances: Sequence[float]) -> float:
    """Tokens a round that drafts so many, each accepted with its chance once those before are."""
    alive = total = 1.0
    for chance in chances:
        alive *= chance
        total += alive
    return total


def even_share(tokens: float, depth: int) -> float:
    """The share at which `depth` drafts alike come to `tokens` a round; 1 where not even all of them do."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_of([middle] * depth) < tokens else (low, middle)
    return high


def _pay(depth: int, tokens: float, cost: float) -> Paying:
    """`cost` is a round's seconds over a plain one's."""
    return Paying(depth, tokens / cost, even_share(tokens, depth), even_share(cost, depth))


def _chances(state: Mapping[str, Any]) -> list[float]:
    counts = state.get("acceptance") or {}
    found: list[float] = []
    for reached, passed in zip(counts.get("reached", ()), counts.get("passed", ()), strict=False):
        if reached < LEAST_REACHED:
            break
        found.append(passed / reached)
    return found


def _seconds(state: Mapping[str, Any]) -> dict[int, float]:
    """By depth, of rounds of one row."""
    table = (state.get("seconds") or {}).get("", ())
    return {width: seconds for rows, width, seconds in table if rows == 1}
