"""Finds the token ids a chat template puts around questions, by rendering it; knows no template itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.forge.rollout import Turns

_FIRST, _ANSWER, _SECOND = "Alpha", "Beta", "Gamma"


class Renders(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def render_chat(self, messages: Sequence[dict[str, str]]) -> list[int]: ...


def choose_turns(tokenizer: Renders, *, raw: bool = False) -> Turns:
    """The turns of a whole conversation, or where none can be told apart those of a single question, whose rows run
    free behind it. `raw` texts, and all texts of a model without a template, are gone on with as they are."""
    if raw:
        return _plain_turns(tokenizer)
    try:
        tokenizer.render_chat([{"role": "user", "content": _FIRST}])
    except InvalidArgument:
        return _plain_turns(tokenizer)
    try:
        return find_turns(tokenizer)
    except FailedPrecondition:
        return _single_turns(tokenizer)


def find_turns(tokenizer: Renders) -> Turns:
    """Splits rendered conversations at their texts. Raises FailedPrecondition where the template hides a text."""
    first, answer, second = (tokenizer.encode(text) for text in (_FIRST, _ANSWER, _SECOND))
    one = tokenizer.render_chat([{"role": "user", "content": _FIRST}])
    two = tokenizer.render_chat(
        [
            {"role": "user", "content": _FIRST},
            {"role": "assistant", "content": _ANSWER},
            {"role": "user", "content": _SECOND},
        ]
    )
    opening, close = _split(one, first)
    _, after = _split(two, answer)
    again, close_again = _split(after, second)
    if not close or close != close_again or close[:1] != again[:1]:
        raise FailedPrecondition(
            "turns differ along a conversation", "chat template", "use a model with a plain one"
        )
    return Turns(first=opening, again=again, close=close, encode=tokenizer.encode)


def _plain_turns(tokenizer: Renders) -> Turns:
    return Turns(first=[], again=[], close=[], encode=tokenizer.encode)


def _single_turns(tokenizer: Renders) -> Turns:
    def render(text: str) -> list[int]:
        return tokenizer.render_chat([{"role": "user", "content": text}])

    return Turns(first=[], again=[], close=[], encode=render)


def _split(ids: list[int], part: list[int]) -> tuple[list[int], list[int]]:
    for place in range(len(ids) - len(part) + 1):
        if ids[place : place + len(part)] == part:
            return ids[:place], ids[place + len(part) :]
    raise FailedPrecondition(
        "the chat template changes what is written in it", None, "train on another model"
    )
