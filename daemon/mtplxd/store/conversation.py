"""What a named conversation is: its messages, its turns with the ids they were made of, and the rules of its name.

Values only; where they are kept is `sessions`' and `session_file`'s.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mtplxd.errors import InvalidArgument

LONGEST_NAME = 64
_NAME = re.compile(r"[^\W_][\w.\-]*")


@dataclass(frozen=True, slots=True)
class Message:
    """Something that was said. `tokens` are an answer's ids as they were generated, empty for what was asked."""

    role: str
    content: str
    turn: int = 0
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbers:
    """How a turn came about. `sampler` is JSON; `at` is seconds of the wall clock.

    `fingerprint` tells the pack that answered from one of the same name with other files.
    """

    model: str
    fingerprint: str = ""
    sampler: str = "{}"
    finish_reason: str = "stop"
    stop_origin: str = "eos"
    cached_tokens: int = 0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What was asked and answered at once, to be kept. `prompt` are the ids that the model read, everything before
    included, and `tokens` those that it made."""

    asked: tuple[Message, ...]
    answer: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    numbers: Numbers

    @property
    def chain(self) -> tuple[int, ...]:
        """All ids behind which the next turn goes on."""
        return self.prompt + self.tokens


@dataclass(frozen=True, slots=True)
class Past:
    """A turn that is kept; what was said is among its session's messages."""

    numbers: Numbers
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A session without what was said. `tokens` are those of its last turn's chain, `nbytes` those of its record;
    `fingerprint` is the latest known of its model."""

    name: str
    model: str = ""
    fingerprint: str = ""
    tokens: int = 0
    nbytes: int = 0
    created: float = 0.0
    updated: float = 0.0
    turns: int = 0
    messages: int = 0
    forked_from: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session with all that was said. `chain` are the ids of its last turn, prompt and answer; `key` names it
    whatever its name, 0 for one that is not kept yet."""

    summary: Summary
    messages: tuple[Message, ...] = ()
    turns: tuple[Past, ...] = ()
    chain: tuple[int, ...] = ()
    key: int = 0

    @property
    def name(self) -> str:
        """Its name."""
        return self.summary.name

    @property
    def system(self) -> str | None:
        """The system text that it began with."""
        first = self.messages[0] if self.messages else None
        return first.content if first is not None and first.role == "system" else None


def check_name(text: str, field: str = "session") -> str:
    """The name as it is kept. Raises InvalidArgument naming the rule."""
    name = unicodedata.normalize("NFC", text.strip())
    if len(name) <= LONGEST_NAME and _NAME.fullmatch(name):
        return name
    shown = name if len(name) <= LONGEST_NAME else f"{name[:24]}…, {len(name)} characters"
    fix = f"give 1 to {LONGEST_NAME} letters, digits, dots, dashes or underscores, a letter or digit first"
    raise InvalidArgument("no name for a session", shown or "empty", fix, field=field)


def fork_names(name: str) -> Iterable[str]:
    """Names for forks of a session, best first, without end: `work-2`, `work-3`, …"""
    count = 2
    while True:
        tail = f"-{count}"
        yield name[: LONGEST_NAME - len(tail)] + tail
        count += 1


def shared(before: Sequence[int], now: Sequence[int]) -> int:
    """How many ids two chains begin with alike."""
    limit = min(len(before), len(now))
    if tuple(before[:limit]) == tuple(now[:limit]):
        return limit
    return next(place for place in range(limit) if before[place] != now[place])


def pack_ids(ids: Sequence[int]) -> bytes:
    """Ids as bytes: 32 bits each, little-endian."""
    return _ordered(array("I", ids)).tobytes()


def unpack_ids(data: bytes) -> tuple[int, ...]:
    """The ids of `pack_ids`."""
    ids = array("I")
    ids.frombytes(data)
    return tuple(_ordered(ids))


def _ordered(ids: array[int]) -> array[int]:
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
