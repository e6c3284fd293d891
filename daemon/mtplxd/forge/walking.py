"""Walks rounds along a text that the target has said: what a head would have had accepted there, without a target.

A greedy answer is the same whatever drafts it, so that the rounds are those of decoding at a fixed depth. The head
takes the target's own states for every pair behind it, as the engine's rounds do. What it drafts first is worked out
for all places at once; only where that is right a round is drafted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mtplxd.engine.drafting import keep_pairs
from mtplxd.families.protocols import Head, LayerCache, Taps
from mtplxd.forge.spoken import Spoken
from mtplxd.platform.mlx import Array, mx


def walk(head: Head, spoken: Spoken, taps: Taps, depth: int) -> list[int]:
    """How many of `depth` drafts each round had accepted. `taps` are those of the text's that this head takes.

    The last `depth` tokens of the text are only for the rounds before them.
    """
    tokens, begin, end = spoken.tokens, spoken.prompt, len(spoken.tokens) - depth
    firsts = _first_drafts(head, spoken, taps)
    trail = _Trail(head, spoken, taps)
    rounds, place = [], begin
    while place < end:
        accepted = 0
        if firsts[place - begin] == tokens[place + 1]:
            wanted = tokens[place + 2 : place + 1 + depth]
            accepted = 1 + _agreed(trail.drafts(place, tokens[place + 1], len(wanted)), wanted)
        rounds.append(accepted)
        place += accepted + 1
    return rounds


def _agreed(drafts: Iterator[int], wanted: Sequence[int]) -> int:
    count = 0
    for token in wanted:
        if next(drafts) != token:
            break
        count += 1
    return count


def _first_drafts(head: Head, spoken: Spoken, taps: Taps) -> list[int]:
    """The most likely token after each of the text's from the last of the prompt on, by one forward."""
    following = mx.array([spoken.tokens[1:]], mx.int32)
    states = head.absorb(following, taps, head.make_cache(1, []))
    found: list[int] = _most_likely(head, states[:, spoken.prompt - 1 :])[0].tolist()
    return found


def _most_likely(head: Head, states: Array) -> Array:
    """Token ids [1, L] for states [1, L, H]."""
    chosen = mx.argmax(head.logits(states), axis=-1)
    return (chosen if head.draft_vocab is None else head.draft_vocab[chosen]).astype(mx.int32)


class _Trail:
    """A head that follows the text from left to right, and drafts on where it is asked to."""

    def __init__(self, head: Head, spoken: Spoken, taps: Taps) -> None:
        self._head, self._spoken, self._taps = head, spoken, taps
        self._cache: list[LayerCache] = head.make_cache(1, [])
        self._pairs = 0

    def drafts(self, place: int, first: int, count: int) -> Iterator[int]:
        """What it drafts after `first`, which it drafted behind the text's first `place` pairs."""
        state = self._absorb(place)
        token: Any = mx.array([[first]], mx.int32)
        for _ in range(count):
            state = self._head.extend(token, state, self._cache)
            token = _most_likely(self._head, state)
            yield int(token.item())

    def _absorb(self, place: int) -> Array:
        """Runs the true pairs up to `place`; gives the newest state [1, 1, H]. What was drafted is forgotten."""
        begin = self._pairs
        keep_pairs(self._cache, [begin])
        following = mx.array([self._spoken.tokens[begin + 1 : place + 1]], mx.int32)
        taps = tuple(tap[:, begin:place] for tap in self._taps)
        self._pairs = place
        return self._head.absorb(following, taps, self._cache)[:, -1:]
