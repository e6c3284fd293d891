"""Runs a head over whole rows at once, as decoding would meet every position: true pairs first, then recursion.

At depth j, position i continues a chain that began at the true pair i. It sees the true pairs 0…i and its own
chain, nothing of other chains, as in decoding, where drafted slots are rolled back. Chains of some neighbouring pairs
alone cost a fraction of all. A head of several layers has a layer for each depth instead, whose slots are all true
pairs of a text that was accepted. Owns the masks; the algebra is the head's.
"""

from __future__ import annotations

from typing import Any

from mtplxd.families.heads.chain import ChainHead
from mtplxd.families.protocols import Head, Taps
from mtplxd.platform.mlx import Array, mx

ALL = slice(None)
"""Chains that begin at every pair."""


class ChainCache:
    """Speaks mlx-lm's cache protocol over one pass: keeps the keys of the true pairs and of each depth's chain."""

    def __init__(self) -> None:
        self.offset = 0
        self._begin = 0
        self._keys: list[Array] = []
        self._values: list[Array] = []

    def follow(self, begin: int) -> None:
        """From now on chains come that begin at the true pair `begin` and behind it."""
        self._begin = begin
        self.offset += begin

    def make_mask(self, count: int, return_array: bool = True) -> Array:  # noqa: ARG002 - it always is one
        """Who sees whom when the next depth's `count` positions are about to be added."""
        if not self._keys:
            return chain_mask(count, 1)
        return chain_mask(
            self._keys[0].shape[2], len(self._keys) + 1, slice(self._begin, self._begin + count)
        )

    def update_and_fetch(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Appends one depth's keys and values [B, heads, P, dim]; gives those of all depths so far."""
        self._keys.append(keys)
        self._values.append(values)
        self.offset += 1
        if len(self._keys) == 1:
            return keys, values
        return mx.concatenate(self._keys, axis=2), mx.concatenate(self._values, axis=2)


def chain_mask(positions: int, depth: int, chains: slice = ALL) -> Array:
    """Who sees whom at `depth` (1: true pairs): bool [C, P + (depth - 1) · C], causal over P true pairs, diagonal over
    the C chains that begin at some of them."""
    pairs = mx.arange(positions)
    begins = pairs[chains]
    own = mx.eye(len(begins), dtype=mx.bool_)
    return mx.concatenate([pairs[None] <= begins[:, None], *[own] * (depth - 1)], axis=1)


def unroll(head: Head, tokens: Array, taps: Taps, depths: int, chains: slice = ALL) -> list[Array]:
    """Token ids [B, P + depths] and taps [B, P, H] of the first P to the states of depths 1…`depths`: [B, P, H] of the
    first, [B, C, H] of the others, whose chains begin at the pairs of `chains` alone.

    State i of depth j was made from the true pair i and tokens i+1 … i+j; its logits predict token i+j+1.
    """
    positions = taps[0].shape[1]
    begin, end, _ = chains.indices(positions)
    cache = ChainCache()
    layers: list[Any] = [cache]
    states = [head.absorb(tokens[:, 1 : 1 + positions], taps, layers)]
    cache.follow(begin)
    state = states[0][:, begin:end]
    for depth in range(2, depths + 1):
        state = head.extend(tokens[:, depth + begin : depth + end], state, layers)
        states.append(state)
    return states


def unroll_layers(head: ChainHead, tokens: Array, taps: Taps, depths: int) -> list[Array]:
    """The same of a head of several layers, one for each depth, each with the cache of its family."""
    (hidden,) = taps
    rows, positions = hidden.shape[:2]
    caches = [head.family.cache(head.args, layer, rows) for layer in range(depths)]
    states: list[Array] = []
    for layer in range(depths):
        if states and head.family.chained != "target":
            hidden = head.fed_back(layer - 1, states[-1])
        states.append(head.run_layer(layer, tokens[:, layer + 1 : layer + 1 + positions], hidden, caches))
    return states
