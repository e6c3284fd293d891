"""Prompts that share beginnings, part in the middle and were edited, and conversations. Pure; nothing is asked here.

A family has a trunk: its prompts are beginnings of the trunk, go on otherwise behind a place in it, or have a few
tokens in the middle exchanged. Places lie anywhere, so that they fall on blocks' edges, beside them and within.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ZOO = Path(__file__).parents[1] / "data" / "zoo"
LONGEST, SHORTEST = 448, 40
ANSWERS = (16, 24, 33, 40)
"""Tokens of answers: with the longest prompt they fit into the zoo's 512 positions."""
_OFF = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
GREEDY = {"temperature": 0.0, **_OFF}
SETTINGS: tuple[dict[str, Any], ...] = (
    {**GREEDY, "depth": 2},
    {**GREEDY, "depth": 0},
    {"temperature": 0.8, **_OFF, "depth": 2, "reproducible": True},
    {**GREEDY, "depth": 1},
    {**GREEDY, "depth": "auto"},
    {**GREEDY, "depth": 1, "reproducible": True},
)
QUESTIONS = (
    "What does async mean?",
    "import os",
    "Write a class.",
    "Permission is hereby granted",
    "Why?",
    "def read(path):",
    "And then?",
    "Name three files.",
)


@dataclass(frozen=True)
class Branch:
    """A prompt as ids, and the client's options for it."""

    family: int
    tokens: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether its text is promised to the last token, however close two tokens are."""
        return bool(self.options.get("reproducible"))


@dataclass(frozen=True)
class Talk:
    """A conversation: what is said to the model, in turn."""

    questions: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """As a branch's."""
        return bool(self.options.get("reproducible"))


def read_ids(name: str) -> list[int]:
    """The prompts that a checkpoint of the zoo was stated with, one behind the other: what it can go on with."""
    expected = json.loads((ZOO / name / "expected.json").read_text(encoding="utf-8"))
    return [token for prompt in expected["prompts"] for token in prompt["tokens"]]


def grow(ids: Sequence[int], families: int, each: int, seed: int = 0) -> list[Branch]:
    """`each` prompts of as many families, made of `ids`; the same for the same arguments."""
    draw = random.Random(f"branches {seed}")
    found: list[Branch] = []
    for family in range(families):
        at = draw.randrange(len(ids))
        trunk = [*ids[at:], *ids[:at]][:LONGEST]
        prompts = [trunk, *(_vary(draw, trunk, ids) for _ in range(each - 1))]
        found += [Branch(family, tuple(prompt), _setting(len(found) + n)) for n, prompt in enumerate(prompts)]
    return found


def talks(count: int, turns: int, seed: int = 0) -> list[Talk]:
    """Conversations, every second one reproducible; some begin alike."""
    draw = random.Random(f"talks {seed}")
    found = []
    for number in range(count):
        questions = [QUESTIONS[number // 2 % 2], *(draw.choice(QUESTIONS) for _ in range(turns - 1))]
        options = {**SETTINGS[(0, 5)[number % 2]], "max_tokens": 24}
        found.append(Talk(tuple(questions), options))
    return found


def _vary(draw: random.Random, trunk: Sequence[int], ids: Sequence[int]) -> list[int]:
    """A beginning of the trunk, one that goes on otherwise, or one that was edited."""
    kind = draw.randrange(4)
    length = draw.randint(SHORTEST, LONGEST)
    if kind == 0:
        return [*trunk[:length]]
    place = draw.randrange(8, length - 8)
    if draw.random() < 0.3:
        place = max(16, place // 16 * 16)
    begin = draw.randrange(len(ids) - LONGEST)
    other = ids[begin : begin + length - place]
    if kind == 1:
        return [*trunk[:place], *other]
    width = draw.randint(1, 8)
    return [*trunk[:place], *other[:width], *trunk[place + width : length]]


def _setting(number: int) -> dict[str, Any]:
    return {
        **SETTINGS[number % len(SETTINGS)],
        "seed": number,
        "max_tokens": ANSWERS[number % len(ANSWERS)],
        "ignore_eos": True,
    }
