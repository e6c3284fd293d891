"""Which blocks on disk are a conversation's: those that its ids name, whatever computed them. Removes nothing.

What another conversation begins with as well is shared, and belongs to no single one.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from mtplxd.store.blocks import Kept
from mtplxd.store.conversation import shared
from mtplxd.store.keys import Chain, digest

MOST_IDS = 1 << 22
"""Ids that a ledger keeps."""


class Blocks(Protocol):
    """What is asked of the store. See `store.disk`."""

    def find(self, name: bytes) -> Kept | None: ...

    def tails(self, parent: bytes) -> list[Kept]: ...

    def roots(self, tokens: Sequence[int]) -> list[Kept]: ...


def blocks_of(store: Blocks, chain: Sequence[int], block: int) -> dict[bytes, Kept]:
    """By name, the blocks and tails that the store has of these ids; `block` is the ids of a whole block."""
    return _named_blocks(store, _Ids(chain, block))


def own_blocks(
    store: Blocks, chains: Mapping[str, Iterable[Sequence[int]]], block: int
) -> dict[str, dict[bytes, Kept]]:
    """By conversation, the blocks of its ids that no other one's ids have."""
    return _alone(
        {name: _all_blocks(store, [_Ids(chain, block) for chain in found]) for name, found in chains.items()}
    )


def own_endings(chains: Mapping[str, Iterable[Sequence[int]]], name: str) -> list[tuple[Sequence[int], int]]:
    """The ids of one conversation, and how many of them another one's begin with as well: what ends behind those is
    nobody else's."""
    others = [chain for other, found in chains.items() if other != name for chain in found]
    return [
        (chain, max((shared(other, chain) for other in others), default=0)) for chain in chains.get(name, ())
    ]


class Ledger:
    """What `own_blocks` says of all conversations, asked again and again: only of those that are new or went on the
    ids have to be read, and named. Safe from any thread."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Hashable, list[_Ids]]] = {}

    def unread(self, stamps: Mapping[str, Hashable]) -> list[str]:
        """Of the conversations there are, each with what changes when it does, those whose ids are not known; what is
        known of others is forgotten."""
        with self._lock:
            self._known = {name: known for name, known in self._known.items() if known[0] == stamps.get(name)}
            return [name for name in stamps if name not in self._known]

    def learn(self, name: str, stamp: Hashable, chains: Iterable[Sequence[int]]) -> None:
        """Takes the ids of one."""
        found = [_Ids(array("I", chain), self._block) for chain in chains]
        with self._lock:
            self._known[name] = stamp, found

    def own(self, store: Blocks) -> dict[str, dict[bytes, Kept]]:
        """By conversation, the blocks that no other one's ids have; where there are very many ids, the oldest known are
        forgotten afterwards."""
        with self._lock:
            found = _alone({name: _all_blocks(store, ids) for name, (_, ids) in self._known.items()})
            total = sum(len(one.ids) for _, ids in self._known.values() for one in ids)
            while total > MOST_IDS:
                _, ids = self._known.pop(next(iter(self._known)))
                total -= sum(len(one.ids) for one in ids)
            return found


class _Ids:
    """Ids, and the names of their whole blocks by what computed them, made once."""

    def __init__(self, ids: Sequence[int], block: int) -> None:
        self.ids, self.block = ids, block
        self._chains: dict[bytes, Chain] = {}

    def chains(self, store: Blocks) -> list[Chain]:
        """Under each identity that computed a beginning of these ids which is kept: a first block, or a tail where they
        are fewer."""
        lengths = range(1, min(self.block, len(self.ids)) + 1)
        identities = {kept.identity for length in lengths for kept in store.roots(tuple(self.ids[:length]))}
        for identity in identities - self._chains.keys():
            self._chains[identity] = Chain(identity, self.ids, self.block)
        return [self._chains[identity] for identity in identities]


def _named_blocks(store: Blocks, ids: _Ids) -> dict[bytes, Kept]:
    found: dict[bytes, Kept] = {}
    for chain in ids.chains(store):
        for place, node in enumerate(chain.nodes):
            if place and (kept := store.find(node)) is not None:
                found[node] = kept
            for tail in store.tails(node):
                span = chain.span(place, tail.length)
                if len(span) == tail.length and digest(node, span) == tail.name:
                    found[tail.name] = tail
    return found


def _all_blocks(store: Blocks, chains: Iterable[_Ids]) -> dict[bytes, Kept]:
    found: dict[bytes, Kept] = {}
    for ids in chains:
        found |= _named_blocks(store, ids)
    return found


def _alone(found: Mapping[str, dict[bytes, Kept]]) -> dict[str, dict[bytes, Kept]]:
    users = Counter(block_name for blocks in found.values() for block_name in blocks)
    return {
        name: {one: kept for one, kept in blocks.items() if users[one] == 1} for name, blocks in found.items()
    }
