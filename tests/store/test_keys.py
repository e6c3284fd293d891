"""A block's name tells whose it is, what came before and what is in it, and nothing else has it."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations

import pytest
from mtplxd.store.keys import BLOCK, FACTS, Chain, digest, identify, identify_body

FACT = {"body": "a", "head": "b", "dtype": "c", "backend": "d", "partition": "e"}
SOME = [*range(5 * BLOCK + 7)]


@pytest.mark.parametrize("changed", sorted(FACTS))
def test_every_fact_makes_another_identity(changed: str) -> None:
    assert identify(FACT) == identify(dict(reversed(FACT.items())))
    assert identify(FACT) != identify({**FACT, changed: "other"})


def test_what_moves_from_one_fact_to_another_is_another_identity() -> None:
    texts = [{**FACT, "body": one, "head": other} for one, other in (("ab", ""), ("a", "b"), ("", "ab"))]
    assert len({identify(facts) for facts in texts}) == 3
    assert identify({**FACT, "body": 'x","head":"y'}) != identify({**FACT, "body": "x", "head": "y"})


@pytest.mark.parametrize(
    "facts", [{}, {**FACT, "more": "x"}, {name: text for name, text in FACT.items() if name != "dtype"}]
)
def test_missing_and_unknown_facts_are_refused(facts: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="instead of"):
        identify(facts)


@pytest.mark.parametrize("changed", sorted(FACTS))
def test_the_body_has_an_identity_that_no_head_changes(changed: str) -> None:
    same = identify_body(FACT) == identify_body({**FACT, changed: "other"})
    assert same == (changed == "head")
    assert identify_body(FACT) != identify(FACT)


@pytest.mark.parametrize("facts", [{}, {name: text for name, text in FACT.items() if name != "head"}])
def test_the_bodys_identity_asks_for_the_same_facts(facts: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="instead of"):
        identify_body(facts)


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK + 6])
def test_a_chain_has_a_node_for_every_whole_block(count: int) -> None:
    chain = Chain(b"me", SOME[:count])
    assert len(chain.nodes) == count // BLOCK + 1
    assert chain.nodes[0] == b"me"
    assert [place for place in range(count // BLOCK) for _ in chain.span(place)] == [
        token // BLOCK for token in SOME[: count // BLOCK * BLOCK]
    ]


def test_sequences_have_the_same_nodes_just_as_far_as_they_are_the_same() -> None:
    whole = Chain(b"me", SOME)
    for at in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 5, 5 * BLOCK - 1, 5 * BLOCK):
        other = Chain(b"me", [*SOME[:at], -1, *SOME[at + 1 :]])
        same = [one == two for one, two in zip(whole.nodes, other.nodes, strict=True)]
        assert same == [place <= at // BLOCK for place in range(len(whole.nodes))]


def test_the_same_block_behind_others_has_another_name() -> None:
    tokens = SOME[:BLOCK]
    names = {digest(parent, tokens) for parent in (b"me", b"you", digest(b"me", tokens))}
    assert len(names) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda tokens: tokens[:-1],
        lambda tokens: [*tokens, 0],
        lambda tokens: [0, *tokens],
        lambda tokens: tokens[::-1],
        lambda tokens: [tokens[1], tokens[0], *tokens[2:]],
        lambda tokens: [*tokens[:-1], tokens[-1] + 2**32],
        lambda tokens: [*tokens[:-1], -tokens[-1]],
    ],
)
def test_other_tokens_have_another_name(change: Callable[[list[int]], list[int]]) -> None:
    assert digest(b"me", SOME[1:9]) != digest(b"me", change(SOME[1:9]))


def test_names_of_many_blocks_and_tails_are_all_different_and_whole_hashes() -> None:
    draw = random.Random(1)
    spans = {tuple(draw.randrange(4) for _ in range(draw.randrange(1, BLOCK + 1))) for _ in range(2000)}
    names = {digest(b"me", span) for span in spans}
    assert len(names) == len(spans)
    assert {len(name) for name in names} == {32}
    assert all(one != other for one, other in combinations(list(names)[:50], 2))


def test_a_chain_names_its_blocks_and_the_tails_behind_them() -> None:
    chain = Chain(b"me", SOME)
    assert [chain.name(place) for place in range(5)] == chain.nodes[1:]
    assert chain.name(2, 7) == digest(chain.nodes[2], SOME[2 * BLOCK : 2 * BLOCK + 7])
    assert chain.name(2, BLOCK) == chain.name(2)


def test_blocks_may_have_another_length() -> None:
    chain = Chain(b"me", SOME[:100], block=16)
    assert len(chain.nodes) == 7
    assert chain.span(6, 4) == (96, 97, 98, 99)
    assert Chain(b"me", SOME[:32], block=16).nodes[1] != Chain(b"me", SOME[:32], block=32).nodes[1]
