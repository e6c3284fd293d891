"""The one place that names a block: a chain of hashes over whose it is, all tokens before it and its own.

Two blocks with one name hold the same tokens behind the same tokens, computed alike. Knows no payload and no place.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BLOCK = 64
"""Tokens of a whole block."""
LAYOUT = "1"
"""Changes with what a block's payload means."""
FACTS = frozenset({"body", "head", "dtype", "backend", "partition"})
"""What makes numbers those of one computation: the weights of body and head with how they are fed, what they compute
in and on, and whether the prompt was cut at fixed places."""


def identify(facts: Mapping[str, str]) -> bytes:
    """The name of what computes: whose blocks hold what the head remembers. Raises ValueError unless there is exactly
    one text for every one of FACTS."""
    return _hash(facts, FACTS)


def identify_body(facts: Mapping[str, str]) -> bytes:
    """The name of the body alone, whose blocks serve it with any head. Takes and refuses the same facts."""
    identify(facts)
    return _hash({fact: text for fact, text in facts.items() if fact != "head"}, FACTS - {"head"})


def digest(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The name of a block of these tokens behind the block `parent`, or behind an identity where it is the first."""
    return hashlib.sha256(parent + struct.pack(f"<I{len(tokens)}q", len(tokens), *tokens)).digest()


@dataclass(slots=True)
class Chain:
    """The whole blocks of a token sequence. `nodes[i]` names the first i of them, `nodes[0]` the identity."""

    identity: bytes
    tokens: Sequence[int]
    block: int = BLOCK
    nodes: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = [self.identity]
        for begin, end in pairwise(range(0, len(self.tokens) + 1, self.block)):
            self.nodes.append(digest(self.nodes[-1], self.tokens[begin:end]))

    def span(self, place: int, length: int | None = None) -> tuple[int, ...]:
        """The tokens of block `place`, or as many as `length` of those that begin where it does."""
        begin = place * self.block
        return tuple(self.tokens[begin : begin + (self.block if length is None else length)])

    def name(self, place: int, length: int | None = None) -> bytes:
        """The name of block `place`, or of a tail of that length which begins where it does."""
        return (
            self.nodes[place + 1] if length is None else digest(self.nodes[place], self.span(place, length))
        )


def _hash(facts: Mapping[str, str], names: frozenset[str]) -> bytes:
    if facts.keys() != names:
        raise ValueError(f"facts {sorted(facts)} instead of {sorted(names)}")
    text = json.dumps([LAYOUT, *sorted(facts.items())], separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()
