"""Memory and disk as one: what is found, where it is taken from, and why something is not there."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from mtplxd.store.blocks import BlockBytes, Kept, Offered, Tensor
from mtplxd.store.keys import Chain, identify, identify_body
from mtplxd.store.planner import RESTORES
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.reader import AHEAD, Item, Reader
from mtplxd.store.tiers import BODY, HEAD, Chains, Miss, Tiers

BLOCK = 4
FACTS = {"body": "b", "head": "h", "dtype": "d", "backend": "k", "partition": "free"}
TEXT = [*range(100, 122)]
PATIENCE_S = 20.0


@dataclass
class FakeDisk:
    """A disk in memory, which can lose and spoil what it has."""

    entries: dict[bytes, Offered] = field(default_factory=dict)
    gone: dict[bytes, str] = field(default_factory=dict)
    waiting: dict[bytes, Offered] = field(default_factory=dict)
    touched: list[bytes] = field(default_factory=list)
    writable: bool = True
    reads: list[bytes] = field(default_factory=list)
    held: list[bytes] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def offer(self, offered: Offered) -> bool:
        self.entries[offered.name] = offered
        return True

    def find(self, name: bytes) -> Kept | None:
        one = self.entries.get(name)
        if one is None:
            return None
        return Kept(
            name, one.identity, one.parent, len(one.tokens), one.tail, one.grade, one.content.nbytes, 1
        )

    def grade(self, name: bytes) -> int | None:
        one = self.entries.get(name) or self.waiting.get(name)
        return one.grade if one else None

    def follows(self, parent: bytes) -> bool:
        return any(one.parent == parent for one in self.entries.values())

    def touch(self, names: Iterable[bytes]) -> None:
        self.touched += names

    def tails(self, parent: bytes) -> list[Kept]:
        found = [self.find(one.name) for one in self.entries.values() if one.tail and one.parent == parent]
        return [kept for kept in found if kept]

    def roots(self, tokens: Sequence[int]) -> list[Kept]:
        found = [
            self.find(one.name)
            for one in self.entries.values()
            if one.parent == one.identity and one.tokens == tuple(tokens)
        ]
        return [kept for kept in found if kept]

    def why(self, name: bytes) -> str:
        return self.gone.get(name, "new")

    def read(self, name: bytes, tokens: Sequence[int]) -> BlockBytes | None:
        assert self.gate.wait(PATIENCE_S)
        self.reads.append(name)
        one = self.entries.get(name)
        return one.content if one is not None and one.tokens == tuple(tokens) else None

    @contextmanager
    def holding(self, names: Iterable[bytes]) -> Iterator[None]:
        names = [*names]
        self.held += names
        yield
        for name in names:
            self.held.remove(name)

    def takes(self, nbytes: int) -> bool:
        return nbytes <= 1 << 20

    def bound_queue(self, nbytes: int) -> None:
        pass

    def discard(self, names: Iterable[bytes]) -> int:
        for name in names:
            self.entries.pop(name, None)
        return 0


@dataclass(frozen=True)
class Payload:
    grades: tuple[int | None, int | None] = (RESTORES, RESTORES)
    nbytes: int = 10


def content(text: str = "") -> BlockBytes:
    return BlockBytes({"text": text}, (Tensor("t", "uint8", (4,), b"1234"),))


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def tiers(disk: FakeDisk) -> Iterator[Tiers[Payload]]:
    made: Tiers[Payload] = Tiers(PrefixIndex(1000, BLOCK), disk)
    yield made
    made.close()


def keep(tiers: Tiers[Payload], chains: Chains, places: Iterable[int], *parts: str) -> None:
    for place in places:
        for part in parts or (BODY, HEAD):
            found = content(f"{place} {part}")
            assert tiers.offer(chains, place, part, found.meta, found.tensors, RESTORES)


def take_all(tiers: Tiers[Payload], chains: Chains, **words: Any) -> tuple[list[int], list[tuple[int, str]]]:
    """What a plan takes from memory, and what from disk."""
    need = tiers.need(total=len(TEXT) - 1, **words)
    plan = tiers.plan(chains, need)
    fetch = tiers.fetch(chains, plan)
    arrived: list[tuple[int, str]] = []
    while not fetch.over:
        if (found := fetch.take()) is None:
            fetch.wait(PATIENCE_S)
        else:
            assert found[2].meta["text"] == f"{found[0]} {found[1]}"
            arrived.append(found[:2])
    fetch.close()
    assert Counter(place for place, _ in arrived) == fetch.coming
    assert tiers.read_ahead == 0
    return [place for place in range(plan.count) if not fetch.coming[place]], arrived


def test_memory_is_asked_first_and_the_disk_for_the_rest(tiers: Tiers[Payload], disk: FakeDisk) -> None:
    chains = tiers.chain(FACTS, TEXT)
    keep(tiers, chains, range(4))
    for place in range(2):
        assert tiers.put(chains, place, Payload())
    held, arrived = take_all(tiers, chains, drafts=True)
    assert (held, arrived) == ([0, 1], [(2, BODY), (2, HEAD), (3, BODY), (3, HEAD)])
    assert tiers.counts.from_disk == 2 * BLOCK
    assert disk.held == []


def test_a_plain_row_reads_no_heads_part(tiers: Tiers[Payload]) -> None:
    chains = tiers.chain(FACTS, TEXT)
    keep(tiers, chains, range(3))
    assert take_all(tiers, chains)[1] == [(0, BODY), (1, BODY), (2, BODY)]


def test_the_part_that_memory_lacks_comes_from_the_disk(tiers: Tiers[Payload]) -> None:
    chains = tiers.chain(FACTS, TEXT)
    keep(tiers, chains, range(3))
    for place in range(3):
        tiers.put(chains, place, Payload(grades=(RESTORES, None)))
    assert take_all(tiers, chains, drafts=True) == ([], [(0, HEAD), (1, HEAD), (2, HEAD)])


def test_the_body_has_the_same_names_under_every_head_and_the_head_has_not() -> None:
    tiers: Tiers[Payload] = Tiers(PrefixIndex(1000, BLOCK), FakeDisk())
    one, other = tiers.chain(FACTS, TEXT), tiers.chain({**FACTS, "head": "another"}, TEXT)
    assert one.body.nodes == other.body.nodes
    assert not set(one.whole.nodes) & set(other.whole.nodes)
    third = tiers.chain({**FACTS, "body": "another"}, TEXT)
    assert not {*one.body.nodes, *one.whole.nodes} & {*third.body.nodes, *third.whole.nodes}
    assert not set(one.body.nodes) & set(one.whole.nodes)
    tiers.close()


def test_what_is_not_to_be_read_ends_the_fetch_as_failed(tiers: Tiers[Payload], disk: FakeDisk) -> None:
    chains = tiers.chain(FACTS, TEXT)
    keep(tiers, chains, range(4))
    found = tiers.plan(chains, tiers.need(total=21))
    disk.entries[chains.body.name(2)] = replace(disk.entries[chains.body.name(2)], tokens=(1, 2, 3, 4))
    fetch = tiers.fetch(chains, found)
    taken = []
    while not fetch.over:
        if (one := fetch.take()) is not None:
            taken.append(one[0])
        else:
            fetch.wait(PATIENCE_S)
    assert taken == [0, 1]
    assert sum(fetch.coming.values()) == 4
    fetch.close()


def test_a_tail_of_other_tokens_is_none(tiers: Tiers[Payload]) -> None:
    chains = tiers.chain(FACTS, TEXT)
    keep(tiers, chains, range(2))
    other = tiers.chain(FACTS, [*TEXT[:9], 7, 7, 7])
    for part in (BODY, HEAD):
        tiers.offer(other, 2, part, {}, (), RESTORES, 3)
        tiers.offer(chains, 2, part, {}, (), RESTORES, 2)
    assert tiers.plan(chains, tiers.need(total=21, drafts=True)).length(BLOCK) == 10
    assert tiers.plan(other, tiers.need(total=12, drafts=True)).length(BLOCK) == 11


def why(tiers: Tiers[Payload], text: list[int], length: int, **facts: str) -> Miss:
    chains = tiers.chain({**FACTS, **facts}, text)
    return tiers.why(chains, tiers.need(total=len(text) - 1, drafts=True), length)


def test_reasons_are_named(tiers: Tiers[Payload], disk: FakeDisk) -> None:
    chains = tiers.chain(FACTS, TEXT)
    assert why(tiers, TEXT, 0) == Miss("new_prefix")
    assert why(tiers, TEXT[:4], 0) == Miss("below_minimum")
    keep(tiers, chains, range(4))
    assert why(tiers, TEXT, 20) == Miss()
    assert why(tiers, TEXT, 0, body="another") == Miss("other_model")
    assert why(tiers, TEXT, 0, dtype="another") == Miss("other_model")
    assert why(tiers, TEXT, 0, partition="fixed 64") == Miss("other_layout")
    assert why(tiers, TEXT, 0, head="another") == Miss("other_head")
    assert why(tiers, TEXT, 16) == Miss()  # nothing goes on there
    for reason in ("evicted", "quarantined"):
        disk.gone[chains.body.name(4)] = reason
        assert why(tiers, TEXT, 16) == Miss(reason)


def test_a_head_that_nobody_had_is_told_from_one_that_another_had(tiers: Tiers[Payload]) -> None:
    chains = tiers.chain(FACTS, TEXT)
    keep(tiers, chains, range(4), BODY)
    assert why(tiers, TEXT, 0) == Miss("head_missing")
    keep(tiers, tiers.chain({**FACTS, "head": "another"}, TEXT), range(1), HEAD)
    assert why(tiers, TEXT, 0) == Miss("other_head")


@pytest.mark.parametrize("at", [4, 5, 7, 9, 15])
def test_where_it_parts_from_what_is_kept_is_told_to_the_token(tiers: Tiers[Payload], at: int) -> None:
    chains = tiers.chain(FACTS, TEXT)
    for place in range(5):
        tiers.put(chains, place, Payload())
    other = [*TEXT[:at], 7, *TEXT[at + 1 :]]
    assert why(tiers, other, at // BLOCK * BLOCK) == Miss("diverged", at)


@pytest.mark.parametrize("at", [5, 7, 9, 15])
def test_where_it_parts_from_what_only_the_disk_has_is_told_to_the_block(
    tiers: Tiers[Payload], at: int
) -> None:
    keep(tiers, tiers.chain(FACTS, TEXT), range(5))
    other = [*TEXT[:at], 7, *TEXT[at + 1 :]]
    begin = at // BLOCK * BLOCK
    assert why(tiers, other, begin) == Miss("diverged", begin)


def test_what_memory_has_is_used_on_disk_too_where_the_disk_is(tiers: Tiers[Payload], disk: FakeDisk) -> None:
    """Else what everybody uses, and nobody reads there, would be the first to go."""
    chains = tiers.chain(FACTS, TEXT)
    keep(tiers, chains, range(2))
    tiers.put(chains, 0, Payload())
    plan = tiers.plan(chains, tiers.need(total=len(TEXT) - 1, drafts=True))
    tiers.fetch(chains, plan, disk=False).close()
    assert disk.touched == []
    tiers.fetch(chains, plan).close()
    assert disk.touched == [chains.body.name(0), chains.whole.name(0)]


def test_what_waits_to_be_written_is_not_lacking(tiers: Tiers[Payload], disk: FakeDisk) -> None:
    chains = tiers.chain(FACTS, TEXT)
    assert tiers.lacks(chains, 0, BODY, RESTORES)
    keep(tiers, chains, [0], BODY)
    disk.waiting, disk.entries = disk.entries, {}
    assert not tiers.lacks(chains, 0, BODY, RESTORES)
    assert tiers.lacks(chains, 0, BODY, RESTORES + 1)


def test_counts_say_why_nothing_was_found(tiers: Tiers[Payload]) -> None:
    tiers.note(0, "new_prefix")
    tiers.note(0, "new_prefix")
    tiers.note(5, "diverged")
    tiers.note(7)
    counts = tiers.counts
    assert counts.miss_reasons == {"new_prefix": 2, "diverged": 1}
    assert (counts.hits, counts.misses, counts.positions) == (2, 2, 12)


def test_without_a_disk_memory_is_all_there_is() -> None:
    tiers: Tiers[Payload] = Tiers(PrefixIndex(1000, BLOCK))
    chains = tiers.chain(FACTS, TEXT)
    tiers.put(chains, 0, Payload())
    assert take_all(tiers, chains) == ([0], [])
    assert not tiers.lacks(chains, 0, BODY, RESTORES)
    assert not tiers.offer(chains, 0, BODY, {}, (), RESTORES)
    assert not tiers.takes(0)
    assert not tiers.writable
    tiers.close()


def test_what_is_kept_as_well_is_not_lacking(tiers: Tiers[Payload]) -> None:
    chains = tiers.chain(FACTS, TEXT)
    keep(tiers, chains, range(1), BODY)
    assert not tiers.lacks(chains, 0, BODY, RESTORES)
    assert tiers.lacks(chains, 0, BODY, RESTORES + 1)
    assert tiers.lacks(chains, 0, HEAD, 0)


def items(count: int, nbytes: int = 4) -> list[Item]:
    return [Item(place, BODY, bytes([place]), (place,), nbytes) for place in range(count)]


def test_what_is_read_ahead_is_bounded_whoever_asks_for_it() -> None:
    """What is being read counts as well, and what nobody wants any more does not."""
    size, reads = 100, []
    big = BlockBytes({}, (Tensor("t", "uint8", (size,), bytes(size)),))

    def read(name: bytes, _tokens: Sequence[int]) -> BlockBytes:
        reads.append(name)
        assert reader.ahead.held <= 250
        return big

    reader = Reader(read)
    reader.ahead.bound(250)
    first, second, third = (reader.submit(items(5, size)) for _ in range(3))
    taken = 0
    while not (first.over and not first.arrived):
        first.wait(PATIENCE_S)
        assert len(reads) <= taken + 2
        taken += first.take() is not None
    second.wait(PATIENCE_S)
    second.drop()
    assert not second.arrived
    while not (third.over and not third.arrived):
        third.wait(PATIENCE_S)
        taken += third.take() is not None
    assert (taken, first.failed, second.failed, third.failed) == (10, False, True, False)
    assert reader.ahead.held == 0
    reader.close()


def test_a_single_block_is_read_however_little_there_is_room_for() -> None:
    reader = Reader(lambda _name, _tokens: content())
    reader.ahead.bound(0)
    job = reader.submit(items(3, 1 << 40))
    for place in range(3):
        job.wait(PATIENCE_S)
        found = job.take()
        assert found is not None
        assert found[0].place == place
    reader.ahead.bound(1 << 50)
    assert reader.ahead.limit == AHEAD
    reader.close()


def test_a_job_that_is_given_up_is_not_read_on() -> None:
    begun, gate = threading.Event(), threading.Event()
    reads: list[bytes] = []

    def read(name: bytes, _tokens: Sequence[int]) -> BlockBytes:
        reads.append(name)
        begun.set()
        assert gate.wait(PATIENCE_S)
        return content()

    reader = Reader(read)
    job, after = reader.submit(items(9)), reader.submit([Item(0, BODY, b"after", ())])
    assert begun.wait(PATIENCE_S)
    job.drop()
    gate.set()
    after.wait(PATIENCE_S)
    assert after.take() is not None
    assert reads == [b"\x00", b"after"]
    assert job.failed
    reader.close()


def test_at_the_end_nobody_waits_for_what_will_not_come() -> None:
    gate = threading.Event()

    def read(_name: bytes, _tokens: Sequence[int]) -> BlockBytes | None:
        gate.wait(PATIENCE_S)
        return None

    reader = Reader(read)
    first, second = reader.submit(items(1)), reader.submit(items(1))
    gate.set()
    reader.close()
    third = reader.submit(items(1))
    for job in (first, second, third):
        job.wait(PATIENCE_S)
        assert job.over
        assert job.failed


def test_identities_of_a_prompt_are_those_of_its_facts() -> None:
    tiers: Tiers[Payload] = Tiers(PrefixIndex(1000, BLOCK), FakeDisk())
    chains = tiers.chain(FACTS, TEXT)
    assert chains.whole.nodes == Chain(identify(FACTS), TEXT, BLOCK).nodes
    assert chains.body.nodes == Chain(identify_body(FACTS), TEXT, BLOCK).nodes
    assert (chains.of(BODY), chains.of(HEAD)) == (chains.body, chains.whole)
    tiers.close()
