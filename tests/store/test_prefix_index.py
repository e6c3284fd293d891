"""The index finds the longest that is kept of a sequence, within its bytes, and no block without those before it."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from mtplxd.store.keys import Chain
from mtplxd.store.prefixes import PrefixIndex

FACT = {"body": "a", "head": "b", "dtype": "c", "backend": "d", "partition": "e"}
OTHER = {**FACT, "partition": "f"}
SIZE = 4


@dataclass(frozen=True)
class Kept:
    """A payload that says what it is of."""

    tokens: tuple[int, ...]
    nbytes: int = 1


Index = PrefixIndex[Kept]


def index_of(limit: int = 1000) -> Index:
    return PrefixIndex(limit, block=SIZE)


def keep(index: Index, tokens: list[int], facts: dict[str, str] = FACT, nbytes: int = 1) -> list[bool]:
    """Puts all whole blocks and the tail; each payload is the tokens up to its end."""
    chain = index.chain(facts, tokens)
    whole, tail = divmod(len(tokens), SIZE)
    done = [index.put(chain, at, Kept(tuple(tokens[: (at + 1) * SIZE]), nbytes)) for at in range(whole)]
    if tail:
        done.append(index.put(chain, whole, Kept(tuple(tokens), nbytes), tail))
    return done


def longest(index: Index, tokens: list[int], facts: dict[str, str] = FACT, limit: int | None = None) -> int:
    """How many tokens at the beginning are kept; what was found is of just these."""
    found = index.walk(index.chain(facts, tokens), len(tokens) if limit is None else limit)
    count = len(found.blocks)
    assert len(found.tails) == count + 1
    for place, block in enumerate(found.blocks):
        assert block.tokens == tuple(tokens[: (place + 1) * SIZE])
    for place, tails in enumerate(found.tails):
        assert [length for length, _ in tails] == sorted((length for length, _ in tails), reverse=True)
        for length, tail in tails:
            assert tail.tokens == tuple(tokens[: place * SIZE + length])
    return count * SIZE + (found.tails[count][0][0] if found.tails[count] else 0)


def assert_sound(index: Index) -> None:
    """Bytes add up and stay in their bound, and whoever is kept has all before it."""
    entries = index._entries
    assert index.nbytes == sum(entry.nbytes for entry in entries.values()) <= index.limit
    assert all(entry.holds == 0 for entry in entries.values())
    identities = {Chain(index.chain(facts, []).identity, []).identity for facts in (FACT, OTHER)}
    for name, entry in entries.items():
        assert entry.parent in entries or entry.parent in identities
        if len(entry.tokens) < SIZE:
            assert index._tails[entry.parent][name] == len(entry.tokens)
    tails = {name: parent for parent, behind in index._tails.items() for name in behind}
    assert all(entries[name].parent == parent for name, parent in tails.items())


def test_nothing_is_found_where_nothing_is_kept() -> None:
    index = index_of()
    assert longest(index, [1, 2, 3, 4, 5]) == 0
    assert longest(index, []) == 0
    assert (index.counts.blocks, index.counts.nbytes) == (0, 0)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 11])
def test_a_sequence_is_found_whole_again(length: int) -> None:
    index = index_of()
    tokens = list(range(length))
    assert all(keep(index, tokens))
    assert longest(index, tokens) == length
    assert longest(index, [*tokens, 99, 98, 97, 96, 95]) == length
    assert longest(index, tokens, OTHER) == 0
    assert_sound(index)


@pytest.mark.parametrize(
    ("limit", "found"), [(11, 11), (10, 8), (9, 8), (8, 8), (7, 4), (4, 4), (3, 0), (0, 0)]
)
def test_what_reaches_beyond_a_limit_is_not_found(limit: int, found: int) -> None:
    index = index_of()
    keep(index, list(range(11)))
    assert longest(index, list(range(30)), limit=limit) == found


def test_the_longest_of_several_tails_is_found_first() -> None:
    index = index_of()
    for length in (5, 7, 6):
        keep(index, list(range(length)))
    assert longest(index, list(range(20))) == 7
    assert longest(index, list(range(20)), limit=6) == 6
    assert longest(index, [*range(6), 99]) == 6
    assert longest(index, [*range(4), 99]) == 4


def brute_force(kept: list[list[int]], tokens: list[int]) -> int:
    """The longest beginning that some kept sequence has a block or a tail end at."""
    best = 0
    for other in kept:
        common = 0
        while common < min(len(other), len(tokens)) and other[common] == tokens[common]:
            common += 1
        best = max(best, common if common == len(other) else common // SIZE * SIZE)
    return best


@pytest.mark.parametrize("seed", range(40))
def test_the_longest_prefix_is_what_brute_force_finds(seed: int) -> None:
    draw, index, kept = random.Random(seed), index_of(), []
    for _ in range(30):
        tokens = [draw.randrange(2) for _ in range(draw.randrange(1, 24))]
        if kept and draw.random() < 0.5:
            tokens = [*draw.choice(kept)[: draw.randrange(24)], *tokens]
        assert longest(index, tokens) == brute_force(kept, tokens)
        keep(index, tokens)
        kept.append(tokens)
        assert longest(index, tokens) == len(tokens)
    assert_sound(index)


@pytest.mark.parametrize("seed", range(40))
def test_within_any_bound_what_is_kept_stays_whole(seed: int) -> None:
    draw, index = random.Random(seed), index_of(limit=draw_limit(seed))
    kept: list[list[int]] = []
    for _ in range(60):
        tokens = [draw.randrange(2) for _ in range(draw.randrange(1, 20))]
        if kept and draw.random() < 0.5:
            tokens = [*draw.choice(kept)[: draw.randrange(16)], *tokens]
        facts = FACT if draw.random() < 0.8 else OTHER
        done = keep(index, tokens, facts, nbytes=draw.randrange(1, 4))
        assert done == sorted(done, reverse=True)  # behind one without room nothing is kept
        kept.append(tokens)
        assert_sound(index)
        assert longest(index, tokens, facts) <= len(tokens)
        if draw.random() < 0.1:
            index.shrink(draw.randrange(index.limit))
            assert_sound(index)
        if draw.random() < 0.05:
            index.drop(facts)
            assert longest(index, tokens, facts) == 0
            assert_sound(index)


def draw_limit(seed: int) -> int:
    return random.Random(1000 + seed).randrange(3, 60)


def test_the_least_recently_used_goes_first_and_its_end_before_its_beginning() -> None:
    index = index_of(limit=6)
    one, two = [1] * 12, [2] * 12
    keep(index, one)
    keep(index, two)
    with index.use(index.chain(FACT, one), 3):
        pass
    keep(index, [3] * 8)
    assert (longest(index, one), longest(index, two), longest(index, [3] * 8)) == (12, 4, 8)
    keep(index, [4] * 8)
    assert (longest(index, one), longest(index, two)) == (8, 0)
    assert index.counts.evicted == 4


def test_looking_is_no_use() -> None:
    index = index_of(limit=2)
    keep(index, [1] * 4)
    keep(index, [2] * 4)
    assert longest(index, [1] * 4) == 4
    keep(index, [3] * 4)
    assert (longest(index, [1] * 4), longest(index, [2] * 4)) == (0, 4)


def test_what_is_in_use_stays_whoever_asks_for_room() -> None:
    index = index_of(limit=4)
    used = [1] * 10
    keep(index, used)
    with index.use(index.chain(FACT, used), 2, 2):
        assert keep(index, [2] * 4) == [True]
        assert keep(index, [3] * 8) == [True, False]
        assert longest(index, used) == 10
        assert index.shrink(0) == 1
        assert longest(index, used) == 10
        assert index.nbytes == 3
    assert keep(index, [4] * 16) == [True] * 4
    assert longest(index, used) == 0
    assert_sound(index)


def test_two_that_use_the_same_both_have_to_let_go() -> None:
    index = index_of(limit=2)
    used = index.chain(FACT, [1] * 8)
    keep(index, [1] * 8)
    with index.use(used, 2):
        with index.use(used, 1):
            assert keep(index, [2] * 4) == [False]
        assert keep(index, [2] * 4) == [False]
    assert keep(index, [2] * 4) == [True]


def test_a_fault_of_the_user_lets_go_too() -> None:
    index = index_of()
    keep(index, [1] * 4)
    with pytest.raises(RuntimeError), index.use(index.chain(FACT, [1] * 4), 1):
        raise RuntimeError
    assert_sound(index)
    assert index.shrink(0) == 1


def test_a_block_larger_than_all_room_drops_nothing_for_itself() -> None:
    index = index_of(limit=5)
    keep(index, [1] * 8)
    assert not index.put(index.chain(FACT, [2] * 4), 0, Kept((), 6))
    assert longest(index, [1] * 8) == 8
    assert index.put(index.chain(FACT, [2] * 4), 0, Kept((2, 2, 2, 2), 5))
    assert (longest(index, [1] * 8), longest(index, [2] * 4)) == (0, 4)


def test_no_bytes_keep_nothing() -> None:
    index = index_of(limit=0)
    assert keep(index, [1] * 8) == [False, False]
    assert index.counts.blocks == 0


def test_a_block_behind_missing_ones_is_not_taken() -> None:
    index = index_of()
    chain = index.chain(FACT, [1] * 12)
    assert not index.put(chain, 1, Kept(()))
    assert not index.put(chain, 2, Kept(()), 3)
    assert index.put(chain, 0, Kept((1, 1, 1, 1)))
    assert not index.put(chain, 2, Kept(()))
    assert_sound(index)


def test_a_block_is_replaced_in_its_place_with_all_behind_it() -> None:
    index = index_of(limit=6)
    tokens = [1] * 12
    keep(index, tokens)
    chain = index.chain(FACT, tokens)
    assert index.put(chain, 0, Kept((1, 1, 1, 1), 3))
    assert (longest(index, tokens), index.nbytes) == (12, 5)
    assert index.get(chain, 0) == Kept((1, 1, 1, 1), 3)
    assert index.put(chain, 1, Kept(tuple(tokens[:8]), 3))  # takes the room of the one behind it
    assert (longest(index, tokens), index.nbytes) == (8, 6)
    assert not index.put(chain, 1, Kept(tuple(tokens[:8]), 4))
    assert index.get(chain, 1) == Kept(tuple(tokens[:8]), 3)
    assert_sound(index)


def test_get_knows_whole_blocks_from_tails() -> None:
    index = index_of()
    tokens = list(range(7))
    keep(index, tokens)
    chain = index.chain(FACT, tokens)
    assert index.get(chain, 0) == Kept((0, 1, 2, 3))
    assert index.get(chain, 1, 3) == Kept(tuple(tokens))
    assert index.get(chain, 1, 2) is None
    assert index.get(index.chain(FACT, [9, *tokens[1:]]), 0) is None


def test_names_that_clash_are_told_apart_by_their_tokens() -> None:
    """Whatever the hash says: tokens are compared, and other tokens' blocks are never given."""
    index = index_of()
    keep(index, [1] * 6)
    chain, other = index.chain(FACT, [1] * 6), index.chain(FACT, [2] * 6)
    other.nodes = chain.nodes
    assert index.walk(other, 6).blocks == []
    assert index.walk(other, 6).tails == [[]]
    assert index.get(other, 0) is None


def test_one_computation_is_dropped_and_the_other_stays() -> None:
    index = index_of()
    keep(index, [1] * 10)
    keep(index, [1] * 10, OTHER)
    index.drop(FACT)
    assert (longest(index, [1] * 10), longest(index, [1] * 10, OTHER)) == (0, 10)
    assert_sound(index)
    index.drop(FACT)
    assert index.nbytes == 3


def test_counts_say_what_became_of_look_ups() -> None:
    index = index_of(limit=7)
    keep(index, [1] * 10, nbytes=2)
    for positions in (0, 8, 0, 3):
        index.note(positions)
    counts = index.counts
    assert (counts.blocks, counts.nbytes, counts.limit) == (3, 6, 7)
    assert (counts.hits, counts.misses, counts.positions, counts.evicted) == (2, 2, 11, 0)


def test_a_text_is_forgotten_as_far_as_it_is_asked_whoever_computed_it() -> None:
    index, mine = index_of(), [*range(10)]
    for facts in (FACT, OTHER):
        keep(index, mine, facts)
        keep(index, mine[:6], facts)
        keep(index, [*mine[:8], 30, 31, 32, 33], facts)
    before = index.nbytes
    assert index.forget(mine, 8) == 2
    assert index.nbytes == before - 2
    assert [longest(index, mine, facts) for facts in (FACT, OTHER)] == [8, 8]
    assert longest(index, [*mine[:8], 30, 31, 32, 33, 34]) == 12
    assert_sound(index)


def test_what_goes_on_from_a_text_that_is_forgotten_goes_with_it() -> None:
    index = index_of()
    keep(index, [*range(23)])
    keep(index, [*range(4), 40, 41, 42, 43])
    assert index.forget([*range(8)], 4) == 5
    assert longest(index, [*range(30)]) == 4
    assert longest(index, [*range(4), 40, 41, 42, 43]) == 8
    assert index.forget([*range(4)], 0) == 2
    assert (index.nbytes, len(index._entries), index._followers, index._tails) == (0, 0, {}, {})
    assert index.forget([1, 2, 3], 0) == 0
