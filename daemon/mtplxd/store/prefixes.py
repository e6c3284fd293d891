"""Blocks of prompts in memory, least recently used ones dropped beyond a bound of bytes.

A block is kept behind the blocks it follows: what is used, is used with all before it, so none loses those. Besides
whole blocks there are tails, shorter ones that end where a prompt did. Payloads are opaque but for their bytes.
One thread uses it; counts may be read from any.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from mtplxd.store.keys import BLOCK, Chain, identify


class Payload(Protocol):
    """What is kept of a block."""

    @property
    def nbytes(self) -> int:
        """Bytes it holds."""

    @property
    def grades(self) -> tuple[int | None, int | None]:
        """What the body's and the head's part are good for (see `planner`), None where it has none."""


P = TypeVar("P", bound=Payload)


@dataclass(frozen=True, slots=True)
class PrefixCounts:
    """Sums since the start. A hit found something of use; `positions` are those that were found, `from_disk` those of
    them that were read there. `miss_reasons` say why it were no more, `dropped` why blocks never got as far as
    the disk."""

    blocks: int = 0
    nbytes: int = 0
    limit: int = 0
    hits: int = 0
    misses: int = 0
    positions: int = 0
    evicted: int = 0
    from_disk: int = 0
    miss_reasons: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Walk(Generic[P]):
    """What is there of a token sequence. `blocks` are its whole blocks from the first on, without a gap; `tails[i]`
    are the tails behind i of them that go on as the tokens do, with their lengths, the longest first."""

    blocks: list[P]
    tails: list[list[tuple[int, P]]]


@dataclass(slots=True)
class _Entry(Generic[P]):
    identity: bytes
    parent: bytes
    tokens: tuple[int, ...]
    payload: P
    nbytes: int
    holds: int = 0


class PrefixIndex(Generic[P]):
    """At most `limit` bytes of payloads; 0 keeps none."""

    def __init__(self, limit: int, block: int = BLOCK) -> None:
        self.limit, self.block = limit, block
        self.nbytes = 0
        self._entries: OrderedDict[bytes, _Entry[P]] = OrderedDict()
        self._tails: dict[bytes, dict[bytes, int]] = {}
        self._followers: dict[bytes, dict[bytes, tuple[int, ...]]] = {}
        self._identities: set[bytes] = set()
        self._hits = self._misses = self._positions = self._evicted = 0

    def chain(self, facts: Mapping[str, str], tokens: Sequence[int]) -> Chain:
        """The names of a token sequence's blocks, computed as `facts` say (see `keys.FACTS`)."""
        return Chain(identify(facts), tokens, self.block)

    def walk(self, chain: Chain, limit: int) -> Walk[P]:
        """What is kept of the first `limit` tokens of a sequence; uses nothing."""
        found: Walk[P] = Walk([], [self.tails_behind(chain, 0, limit)])
        for place, name in enumerate(chain.nodes[1:]):
            entry = self._entries.get(name)
            end = (place + 1) * self.block
            if entry is None or end > limit or entry.tokens != chain.span(place):
                break
            found.blocks.append(entry.payload)
            found.tails.append(self.tails_behind(chain, place + 1, limit))
        return found

    def get(self, chain: Chain, place: int, length: int | None = None) -> P | None:
        """The payload of a whole block, or of a tail of that length which begins where the block does."""
        entry = self._entries.get(chain.name(place, length))
        return entry.payload if entry and entry.tokens == chain.span(place, length) else None

    def put(self, chain: Chain, place: int, payload: P, length: int | None = None) -> bool:
        """Keeps a whole block, or a tail of that length, in place of what was kept of it; False where there is no room
        or the blocks before it are gone."""
        name, ancestors = chain.name(place, length), chain.nodes[1 : place + 1]
        if any(node not in self._entries for node in ancestors):
            return False
        old = self._entries.get(name)
        with self._held([*ancestors, name] if old else ancestors):
            if not self._make_room(payload.nbytes - (old.nbytes if old else 0)):
                return False
        if old is None:
            parent = chain.nodes[place]
            old = _Entry(chain.identity, parent, chain.span(place, length), payload, 0)
            self._entries[name] = old
            self._identities.add(chain.identity)
            self._followers.setdefault(parent, {})[name] = old.tokens
            if length is not None:
                self._tails.setdefault(parent, {})[name] = length
        self.nbytes += payload.nbytes - old.nbytes
        old.payload, old.nbytes = payload, payload.nbytes
        self._touch([*ancestors, name])
        return True

    def touch(self, chain: Chain, blocks: Sequence[tuple[int, int | None]]) -> None:
        """Makes these blocks, in their order, and tails the latest used."""
        self._touch(
            [name for place, length in blocks if (name := chain.name(place, length)) in self._entries]
        )

    def parts_at(self, chain: Chain, place: int) -> int | None:
        """The position where what is kept behind the first `place` blocks first goes on otherwise; None where nothing
        is kept that does."""
        tokens = chain.tokens[place * self.block :]
        common = [
            next((n for n, pair in enumerate(zip(tokens, other, strict=False)) if pair[0] != pair[1]), None)
            for other in self._followers.get(chain.nodes[place], {}).values()
        ]
        found = [count for count in common if count is not None]
        return place * self.block + max(found) if found else None

    def roots(self, tokens: tuple[int, ...]) -> set[bytes]:
        """Whose first blocks have just these tokens."""
        return {
            identity for identity in self._identities if tokens in self._followers.get(identity, {}).values()
        }

    @contextmanager
    def use(self, chain: Chain, count: int, tail: int | None = None) -> Iterator[None]:
        """While it lasts the first `count` blocks, and a tail behind them, stay; they are the latest used then."""
        names = [*chain.nodes[1 : count + 1], *([chain.name(count, tail)] if tail else [])]
        self._touch(names)
        with self._held(names):
            yield

    def note(self, positions: int) -> None:
        """Counts a look-up that found so many positions of use."""
        self._hits, self._misses = self._hits + (positions > 0), self._misses + (positions == 0)
        self._positions += positions

    def shrink(self, limit: int) -> int:
        """Drops blocks until at most `limit` bytes are held, or all others are in use; gives the bytes it dropped."""
        before = self.nbytes
        self._evict_to(limit)
        return before - self.nbytes

    def drop(self, facts: Mapping[str, str]) -> None:
        """Drops all blocks of one computation."""
        identity = identify(facts)
        for name in [name for name, entry in self._entries.items() if entry.identity == identity]:
            self._remove(name)

    def forget(self, tokens: Sequence[int], beyond: int) -> int:
        """Drops the blocks of a text that end behind its first `beyond` tokens, whoever computed them, and all that
        follows those; gives the bytes it dropped."""
        before = self.nbytes
        for identity in self._identities:
            chain = Chain(identity, tokens, self.block)
            for place, node in enumerate(chain.nodes):
                begin = place * self.block
                for name, own in [*self._followers.get(node, {}).items()]:
                    if begin + len(own) > beyond and own == chain.span(place, len(own)):
                        self._remove_all(name)
        return before - self.nbytes

    @property
    def counts(self) -> PrefixCounts:
        """What is held and what came of it."""
        return PrefixCounts(
            len(self._entries), self.nbytes, self.limit, self._hits, self._misses, self._positions, self._evicted
        )  # fmt: skip

    def tails_behind(self, chain: Chain, place: int, limit: int) -> list[tuple[int, P]]:
        """The tails behind so many whole blocks that go on as the tokens do, with their lengths, the longest first."""
        found = []
        for name, length in self._tails.get(chain.nodes[place], {}).items():
            entry = self._entries[name]
            if place * self.block + length <= limit and entry.tokens == chain.span(place, length):
                found.append((length, entry.payload))
        return sorted(found, key=lambda tail: -tail[0])

    def _touch(self, names: Sequence[bytes]) -> None:
        """Makes these blocks the latest used, the first of them last: none is ever dropped before what follows it."""
        for name in reversed(names):
            self._entries.move_to_end(name)

    @contextmanager
    def _held(self, names: Sequence[bytes]) -> Iterator[None]:
        entries = [self._entries[name] for name in names]
        for entry in entries:
            entry.holds += 1
        try:
            yield
        finally:
            for entry in entries:
                entry.holds -= 1

    def _make_room(self, extra: int) -> bool:
        held = sum(entry.nbytes for entry in self._entries.values() if entry.holds)
        if held + extra > self.limit:
            return False
        self._evict_to(self.limit - extra)
        return True

    def _evict_to(self, limit: int) -> None:
        for name, entry in [*self._entries.items()]:
            if self.nbytes <= limit:
                return
            if not entry.holds:
                self._remove(name)
                self._evicted += 1

    def _remove_all(self, name: bytes) -> None:
        """Removes a block and what follows it, however long that is."""
        going = [name]
        while going:
            name = going.pop()
            going += self._followers.get(name, {})
            self._remove(name)

    def _remove(self, name: bytes) -> None:
        entry = self._entries.pop(name)
        self.nbytes -= entry.nbytes
        for groups in (self._tails, self._followers):
            siblings: dict[bytes, Any] = groups.get(entry.parent, {})
            if siblings.pop(name, None) is not None and not siblings:
                del groups[entry.parent]
