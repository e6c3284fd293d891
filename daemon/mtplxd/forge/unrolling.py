"""Runs a head over whole rows at once, as decoding would meet every position: true pairs first, then recursion.

At depth j, position i continues a chain that began at the true pair i. It sees the true pairs 0…i and its own
chain, nothing of other chains, as in decoding, where drafted slots are rolled back. Owns the masks; the algebra is
the module's.
"""

from __future__ import annotations

from typing import Any

from mtplxd.families.adapter import AdapterModule
from mtplxd.platform.mlx import Array, mx


class ChainCache:
    """Speaks mlx-lm's cache protocol over one pass: keeps the keys of the true pairs and of each depth's chain."""

    def __init__(self) -> None:
        self.offset = 0
        self._keys: list[Array] = []
        self._values: list[Array] = []

    def update_and_fetch(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Appends one depth's keys and values [B, heads, P, dim]; gives those of all depths so far."""
        self._keys.append(keys)
        self._values.append(values)
        self.offset += 1
        if len(self._keys) == 1:
            return keys, values
        return mx.concatenate(self._keys, axis=2), mx.concatenate(self._values, axis=2)


def chain_mask(positions: int, depth: int) -> Array:
    """Who sees whom at `depth` (1: true pairs): bool [P, depth · P], causal over true pairs, diagonal over chains."""
    rows = mx.arange(positions)[:, None]
    columns = mx.arange(positions)[None]
    own = mx.broadcast_to(rows == columns, (positions, positions))
    return mx.concatenate([columns <= rows, *[own] * (depth - 1)], axis=1)


def unroll(module: AdapterModule, embed: Any, tokens: Array, taps: list[Array], depths: int) -> list[Array]:
    """Token ids [B, P + depths] and taps [B, P, H] of the first P to the states z of depths 1…`depths`, each [B, P, H].

    State i of depth j was made from the true pair i and tokens i+1 … i+j; its logits predict token i+j+1.
    """
    positions = taps[0].shape[1]
    cache = ChainCache()
    states: list[Array] = []
    for depth in range(1, depths + 1):
        embedded = embed(tokens[:, depth : depth + positions])
        joined = (
            module.join_taps(embedded, tuple(taps)) if depth == 1 else module.join_state(embedded, states[-1])
        )
        states.append(module.run_block(joined, chain_mask(positions, depth), cache))
    return states
