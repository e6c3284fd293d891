"""Finds the token ids a chat template puts around questions, by rendering it; knows no template itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mtplxd.errors import FailedPrecondition
from mtplxd.forge.rollout import Turns

_FIRST, _ANSWER, _SECOND = "Alpha", "Beta", "Gamma"


class Renders(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def render_chat(self, messages: Sequence[dict[str, str]]) -> list[int]: ...


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
    if close != close_again or close[:1] != again[:1]:
        raise FailedPrecondition(
            "turns differ along a conversation", "chat template", "use a model with a plain one"
        )
    return Turns(first=opening, again=again, close=close, encode=tokenizer.encode)


def _split(ids: list[int], part: list[int]) -> tuple[list[int], list[int]]:
    for place in range(len(ids) - len(part) + 1):
        if ids[place : place + len(part)] == part:
            return ids[:place], ids[place + len(part) :]
    raise FailedPrecondition(
        "the chat template changes what is written in it", None, "train on another model"
    )
