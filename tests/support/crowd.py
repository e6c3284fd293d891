"""Rows that share forwards beside the same rows alone: what a body and its head make of both must be one.

Each row's text, lengths and accepted counts are its own. Rows come from prefills of their own, join, and leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from mtplxd.families.caches import WindowCache
from mtplxd.families.protocols import Head, LayerCache, Target
from mtplxd.platform.mlx import Array, mx
from support.steering import contents, leaves

CHUNK = 64
TOLERANCE = 1e-4


@dataclass
class Member:
    """A row alone: its text so far, its own caches, its pairs that the head has not absorbed yet."""

    tokens: list[int]
    cache: list[LayerCache]
    head_cache: list[LayerCache]
    pairs: int = 0
    taps: list[tuple[Array, ...]] = field(default_factory=list)

    @property
    def held(self) -> int:
        """Positions in the body's caches: all but the last token's."""
        return len(self.tokens) - 1

    @property
    def pending(self) -> int:
        """Pairs that the head has yet to absorb."""
        return sum(part[0].shape[1] for part in self.taps)

    def take_pending(self) -> tuple[list[int], tuple[Array, ...]]:
        """Their tokens and taps, which are then no longer pending."""
        first = self.held - self.pending + 1
        joined = tuple(mx.concatenate(parts, axis=1) for parts in zip(*self.taps, strict=True))
        self.taps = []
        return self.tokens[first:], joined


class Crowd:
    """The rows together and apart. `head` None compares the body alone."""

    def __init__(
        self, target: Target, head: Head | None, seed: int = 0, tolerance: float = TOLERANCE
    ) -> None:
        self.target, self.head = target, head
        self.cache = target.make_cache(0)
        self.head_cache = head.make_cache(0, self.cache) if head else []
        self.members: list[Member] = []
        self.tolerance = tolerance
        self.worst = 0.0
        self._rng = np.random.default_rng(seed)

    def join(self, length: int, *, absorb: int = -1) -> None:
        """A row of `length` tokens comes in from a prefill of its own, its head behind all pairs but one (`absorb`
        of them, where that is said)."""
        member = self._prefilled(length, absorb)
        again = self._prefilled(length, absorb, tokens=member.tokens)
        self.members.append(member)
        for mine, theirs in zip(
            [*self.cache, *self.head_cache], [*again.cache, *again.head_cache], strict=True
        ):
            mine.join(theirs)

    def leave(self, place: int) -> Member:
        """A row goes; the last takes its place."""
        for layer in (*self.cache, *self.head_cache):
            layer.leave(place)
        gone = self.members[place]
        self.members[place] = self.members[-1]
        self.members.pop()
        return gone

    def spoil(self) -> None:
        """Makes everything that no row may see unusable."""
        for layer in (*self.cache, *self.head_cache):
            poison(layer)

    def copy(self, place: int) -> Crowd:
        """A crowd of a copy of one row alone, whose own caches go on as the row's."""
        other = Crowd(self.target, self.head, tolerance=self.tolerance)
        other.cache = [layer.copy_row(place) for layer in self.cache]
        other.head_cache = [layer.copy_row(place) for layer in self.head_cache]
        member = self.members[place]
        own = [layer.copy_row(0) for layer in member.cache]
        own_head = [layer.copy_row(0) for layer in member.head_cache]
        for heads, body in ((other.head_cache, other.cache), (own_head, own)):
            for layer in heads:
                layer.read_from(body)
        other.members = [Member(list(member.tokens), own, own_head, member.pairs, list(member.taps))]
        return other

    def play(self, count: int, kept: Sequence[int], depth: int = 3, idle: Sequence[int] = ()) -> None:
        """A round: drafts where there is a head, then verifies."""
        if self.head is not None and depth:
            self.draft(depth, idle)
        self.verify(count, kept)

    def verify(self, count: int, kept: Sequence[int]) -> None:
        """One forward of the body over `count` positions, of which row b keeps `kept[b]` (at least its first)."""
        new = [self._draw(count) for _ in self.members]
        inputs = [[member.tokens[-1], *drawn[:-1]] for member, drawn in zip(self.members, new, strict=True)]
        logits, taps = self._run(inputs, self.cache)
        for b, (member, drawn, some) in enumerate(zip(self.members, new, kept, strict=True)):
            alone, own = self._run([inputs[b]], member.cache)
            self._compare(f"logits of row {b}", logits[b], alone[0])
            for one, other in zip(taps, own, strict=True):
                self._compare(f"tap of row {b}", one[b], other[0])
            member.taps.append(tuple(tap[:, :some] for tap in own))
            _set(member.cache, [member.held + some])
            member.tokens += drawn[:some]
        _set(self.cache, [member.held for member in self.members])

    def draft(self, depth: int, idle: Sequence[int] = ()) -> None:
        """The head absorbs what is pending of all rows but the `idle`, and drafts `depth` tokens a row."""
        assert self.head is not None
        active = [b for b, member in enumerate(self.members) if member.pending and b not in idle]
        if not active:
            return
        queued = {b: self.members[b].take_pending() for b in active}
        width = max(len(tokens) for tokens, _ in queued.values())
        like = next(iter(queued.values()))[1]
        tokens, taps = [], []
        for b in range(len(self.members)):
            own, joined = queued.get(b, ([], tuple(tap[:, :0] for tap in like)))
            missing = width - len(own)
            tokens.append([*own, *[0] * missing])
            taps.append([mx.pad(tap, [(0, 0), (0, missing), (0, 0)]) for tap in joined])
        columns = tuple(mx.concatenate(rows) for rows in zip(*taps, strict=True))
        states = self.head.absorb(mx.array(tokens, mx.int32), columns, self.head_cache)
        alone = {}
        for b in active:
            own, joined = queued[b]
            member = self.members[b]
            alone[b] = self.head.absorb(mx.array([own], mx.int32), joined, member.head_cache)[:, -1:]
            member.pairs += len(own)
        self._keep_pairs()
        newest = [max(len(queued[b][0]) - 1, 0) if b in queued else 0 for b in range(len(self.members))]
        state = (
            states[:, -1:]
            if len(newest) == 1
            else mx.take_along_axis(states, mx.array(newest)[:, None, None], axis=1)
        )
        for step in range(depth):
            if step:
                drafts = [self._draw(1) for _ in self.members]
                state = self.head.extend(mx.array(drafts, mx.int32), state, self.head_cache)
                for b in active:
                    one = mx.array([drafts[b]], mx.int32)
                    alone[b] = self.head.extend(one, alone[b], self.members[b].head_cache)
            together = self.head.logits(state)
            for b in active:
                self._compare(f"draft {step} of row {b}", together[b], self.head.logits(alone[b])[0])
        self._keep_pairs()

    def check_contents(self) -> None:
        """Every row's caches hold what its own do alone, counted in positions and in numbers."""
        for b, member in enumerate(self.members):
            for ours, theirs in ((self.cache, member.cache), (self.head_cache, member.head_cache)):
                for layer, true in zip(ours, theirs, strict=True):
                    assert layer.lengths[b] == true.lengths[0]
                    found, wanted = contents(layer, b), contents(true)
                    assert len(found) == len(wanted)
                    for one, other in zip(found, wanted, strict=True):
                        self._compare(f"cache of row {b}", one, other)

    def _prefilled(self, length: int, absorb: int, tokens: list[int] | None = None) -> Member:
        tokens = tokens or self._draw(length)
        cache = self.target.make_cache(1)
        member = Member(tokens, cache, self.head.make_cache(1, cache) if self.head else [])
        for begin in range(0, length - 1, CHUNK):
            part = tokens[begin : min(begin + CHUNK, length - 1)]
            _, taps = self.target.run(mx.array([part], mx.int32), cache)
            member.taps.append(taps)
            mx.eval(*(array for layer in cache for array in layer.state), *taps)
        ready = max(length - 2, 0) if absorb < 0 else min(absorb, length - 1)
        if self.head is None or not member.taps:
            return member
        pending, joined = member.take_pending()
        if ready:
            self.head.absorb(
                mx.array([pending[:ready]], mx.int32),
                tuple(tap[:, :ready] for tap in joined),
                member.head_cache,
            )
            member.pairs = ready
        for lag, layer in enumerate(member.head_cache):
            layer.roll_back([max(0, ready - lag)])
        if ready < len(pending):
            member.taps = [tuple(tap[:, ready:] for tap in joined)]
        return member

    def _run(
        self, tokens: Sequence[Sequence[int]], cache: list[LayerCache]
    ) -> tuple[Array, tuple[Array, ...]]:
        hidden, taps = self.target.run(mx.array(tokens, mx.int32), cache)
        return self.target.logits(hidden), taps

    def _keep_pairs(self) -> None:
        for lag, layer in enumerate(self.head_cache):
            layer.roll_back([max(0, member.pairs - lag) for member in self.members])
        for member in self.members:
            for lag, layer in enumerate(member.head_cache):
                layer.roll_back([max(0, member.pairs - lag)])

    def _draw(self, count: int) -> list[int]:
        return [int(token) for token in self._rng.integers(3, self.target.vocab_size, count)]

    def _compare(self, what: str, found: Array, wanted: Array) -> None:
        one, other = np.array(found.astype(mx.float32)), np.array(wanted.astype(mx.float32))
        assert one.shape == other.shape, what
        wrong = float(np.abs(one - other).max(initial=0) / (1 + np.abs(other).max(initial=0)))
        self.worst = max(self.worst, wrong)
        assert wrong <= self.tolerance, f"{what} is {wrong:.1e} off"


def _set(cache: Sequence[LayerCache], lengths: Sequence[int]) -> None:
    for layer in cache:
        layer.roll_back(lengths)


def poison(layer: LayerCache, ahead: int = 8, inside: float = 1e6) -> None:
    """Overwrites what no row may see: `inside` up to where the longest row may write next, no numbers at all behind
    that and in the room that no row has."""
    for leaf in leaves(layer):
        if getattr(leaf, "keys", None) is None:
            continue
        rows, slots = len(leaf.lengths), mx.arange(leaf.keys.shape[2])
        last = mx.array(leaf.slots)[:, None]
        unseen = slots >= last
        if isinstance(leaf, WindowCache):
            # what reads the newest position again, as a Gemma drafter does, sees one more than the next position
            reach = [max(0, length - leaf.window) for length in leaf.lengths]
            unseen = unseen | (slots < mx.array(reach)[:, None] - mx.array(leaf.begins)[:, None])
        near = slots < max(leaf.slots) + ahead
        bad = mx.where(near, inside, mx.nan)[None, None, :, None]
        spoiled = []
        for array in (leaf.keys, leaf.values):
            own = mx.where(unseen[:, None, :, None], bad.astype(array.dtype), array[:rows])
            spoiled.append(mx.concatenate([own, mx.full(array[rows:].shape, mx.nan, array.dtype)]))
        leaf.keys, leaf.values = spoiled
