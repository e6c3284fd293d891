"""Which blocks on disk are a conversation's: those that its ids name, whatever computed them. Removes nothing.

What another conversation begins with as well is shared, and belongs to no single one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from mtplxd.store.blocks import Kept
from mtplxd.store.keys import Chain, digest


class Blocks(Protocol):
    """What is asked of the store. See `store.disk`."""

    def find(self, name: bytes) -> Kept | None: ...

    def tails(self, parent: bytes) -> list[Kept]: ...

    def roots(self, tokens: Sequence[int]) -> list[Kept]: ...


def blocks_of(store: Blocks, chain: Sequence[int], block: int) -> dict[bytes, Kept]:
    """By name, the blocks and tails that the store has of these ids; `block` is the ids of a whole block."""
    found: dict[bytes, Kept] = {}
    for identity in _identities(store, chain, block):
        nodes = Chain(identity, chain, block).nodes
        for place, node in enumerate(nodes):
            if place and (kept := store.find(node)) is not None:
                found[node] = kept
            begin = place * block
            for tail in store.tails(node):
                ids = chain[begin : begin + tail.length]
                if len(ids) == tail.length and digest(node, ids) == tail.name:
                    found[tail.name] = tail
    return found


def own_blocks(
    store: Blocks, chains: Mapping[str, Iterable[Sequence[int]]], block: int
) -> dict[str, dict[bytes, Kept]]:
    """By conversation, the blocks of its ids that no other one's ids have."""
    found: dict[str, dict[bytes, Kept]] = {}
    for name, own in chains.items():
        found[name] = {}
        for chain in own:
            found[name] |= blocks_of(store, chain, block)
    users = Counter(block_name for blocks in found.values() for block_name in blocks)
    return {
        name: {one: kept for one, kept in blocks.items() if users[one] == 1} for name, blocks in found.items()
    }


def _identities(store: Blocks, chain: Sequence[int], block: int) -> set[bytes]:
    """Whatever computed a beginning of these ids that is kept: a first block, or a tail where they are fewer."""
    lengths = range(1, min(block, len(chain)) + 1)
    return {kept.identity for length in lengths for kept in store.roots(chain[:length])}
