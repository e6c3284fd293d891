"""Which blocks are a conversation's: found by its ids alone, whatever computed them, and spared where others share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from mtplxd.store import belongings
from mtplxd.store.belongings import Ledger, blocks_of, own_blocks, own_endings
from mtplxd.store.blocks import Kept
from mtplxd.store.keys import Chain

BLOCK = 4
BODY, HEAD = b"body" * 8, b"head" * 8


class Shelf:
    """What the store knows without reading: names, parents, and first blocks by their tokens."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Kept] = {}
        self.first: dict[tuple[int, ...], list[Kept]] = {}

    def find(self, name: bytes) -> Kept | None:
        return self.kept.get(name)

    def tails(self, parent: bytes) -> list[Kept]:
        return [kept for kept in self.kept.values() if kept.tail and kept.parent == parent]

    def roots(self, tokens: Sequence[int]) -> list[Kept]:
        return self.first.get(tuple(tokens), [])

    def put(self, identity: bytes, ids: Sequence[int]) -> set[bytes]:
        """Keeps all whole blocks of these ids and a tail behind them; their names."""
        chain = Chain(identity, ids, BLOCK)
        names = set()
        for place in range(len(chain.nodes) - 1):
            names.add(self._add(chain, place, None))
        if rest := len(ids) % BLOCK:
            names.add(self._add(chain, len(chain.nodes) - 1, rest))
        return names

    def _add(self, chain: Chain, place: int, length: int | None) -> bytes:
        name, tokens = chain.name(place, length), chain.span(place, length)
        tail = length is not None
        kept = Kept(name, chain.identity, chain.nodes[place], len(tokens), tail, 0, 10, 7)
        self.kept[name] = kept
        if place == 0 and kept not in self.first.setdefault(tokens, []):
            self.first[tokens].append(kept)
        return name


def test_all_blocks_of_its_ids_are_found_of_every_identity_and_no_others() -> None:
    shelf = Shelf()
    ids = list(range(10))
    names = shelf.put(BODY, ids) | shelf.put(HEAD, ids)
    shelf.put(BODY, [0, 1, 2, 3, 99, 98, 97, 96])
    shelf.put(BODY, [*range(8), 77])
    assert blocks_of(shelf, ids, BLOCK).keys() == names


def test_tails_of_earlier_turns_are_found_where_the_ids_went_on() -> None:
    shelf = Shelf()
    names = shelf.put(BODY, range(6)) | shelf.put(BODY, range(11))
    assert len(names) == 4
    assert blocks_of(shelf, list(range(11)), BLOCK).keys() == names


def test_ids_that_fill_no_block_have_a_tail() -> None:
    shelf = Shelf()
    names = shelf.put(BODY, [1, 2])
    assert blocks_of(shelf, [1, 2, 3], BLOCK).keys() == names
    assert blocks_of(shelf, [1, 3], BLOCK) == {}


def test_a_gap_hides_nothing_behind_it() -> None:
    shelf = Shelf()
    ids = list(range(12))
    names = shelf.put(BODY, ids)
    del shelf.kept[Chain(BODY, ids, BLOCK).nodes[2]]
    assert len(blocks_of(shelf, ids, BLOCK)) == len(names) - 1


def test_what_two_conversations_begin_with_belongs_to_neither() -> None:
    shelf = Shelf()
    one, two = [*range(8), 20, 21, 22, 23], [*range(8), 30, 31]
    names_one, names_two = shelf.put(BODY, one), shelf.put(BODY, two)
    found = own_blocks(shelf, {"one": [one], "two": [two]}, BLOCK)
    assert found["one"].keys() == names_one - names_two
    assert found["two"].keys() == names_two - names_one
    assert len(names_one & names_two) == 2
    alone = own_blocks(shelf, {"one": [one]}, BLOCK)
    assert alone["one"].keys() == names_one


def test_all_chains_of_a_conversation_are_its_own() -> None:
    shelf = Shelf()
    before, now = [*range(4), 9, 9, 9, 9], list(range(8))
    names = shelf.put(BODY, before) | shelf.put(BODY, now)
    assert own_blocks(shelf, {"one": [before, now]}, BLOCK)["one"].keys() == names


def test_what_ends_a_conversation_is_its_own_as_far_as_no_other_begins_so() -> None:
    chains = {"one": [(1, 2, 3, 4), (1, 9)], "two": [(1, 2, 7)], "three": [(1, 2, 3, 8)], "other": [(5,)]}
    assert own_endings(chains, "one") == [((1, 2, 3, 4), 3), ((1, 9), 1)]
    assert own_endings(chains, "other") == [((5,), 0)]
    assert own_endings(chains, "nobody") == []
    assert own_endings({"one": [(1, 2)], "two": [(1, 2)]}, "one") == [((1, 2), 2)]


def test_a_ledger_asks_for_the_ids_of_what_is_new_or_went_on_and_forgets_what_is_gone() -> None:
    ledger = Ledger(BLOCK)
    assert ledger.unread({"one": 1, "two": 1}) == ["one", "two"]
    ledger.learn("one", 1, [[1, 2, 3]])
    ledger.learn("two", 1, [[4]])
    assert ledger.unread({"one": 1, "two": 2, "three": 1}) == ["two", "three"]
    assert ledger.unread({"one": 1}) == []
    assert ledger.unread({"two": 1}) == ["two"]
    assert ledger.unread({"one": 1}) == ["one"]


def test_a_ledger_says_what_is_alone_now_whatever_came_or_went_since() -> None:
    shelf, ledger = Shelf(), Ledger(BLOCK)
    one, two = [*range(8), 20, 21, 22, 23], [*range(8), 30, 31]
    ledger.learn("one", 1, [one])
    assert ledger.own(shelf) == {"one": {}}
    names_one, names_two = shelf.put(BODY, one), shelf.put(BODY, two)
    assert ledger.own(shelf)["one"].keys() == names_one
    ledger.learn("two", 1, [two])
    names_head = shelf.put(HEAD, one) - {*Chain(HEAD, two, BLOCK).nodes}
    assert ledger.own(shelf)["one"].keys() == (names_one | names_head) - names_two
    assert ledger.own(shelf)["two"].keys() == names_two - names_one
    for name in names_one:
        del shelf.kept[name]
    assert ledger.own(shelf)["one"].keys() == names_head
    assert ledger.own(shelf) == own_blocks(shelf, {"one": [one], "two": [two]}, BLOCK)


def test_a_ledger_keeps_no_more_ids_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(belongings, "MOST_IDS", 5)
    shelf, ledger = Shelf(), Ledger(BLOCK)
    names = shelf.put(BODY, [1, 2, 3, 4])
    ledger.learn("one", 1, [[1, 2, 3, 4]])
    ledger.learn("two", 1, [[5, 6, 7]])
    assert ledger.own(shelf)["one"].keys() == names
    assert ledger.unread({"one": 1, "two": 1}) == ["one"]
