"""What calls about named conversations answer: frozen dataclasses, their fields named as on the wire.

Owns no wire format and no display. Sizes are bytes, times seconds of the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mtplx_client.events import Usage


@dataclass(frozen=True)
class Session:
    """A named conversation; `tokens` are those its model has read and made. `busy` = an answer is on its way.

    `notices` say in words what its next turn would meet, such as a model that is gone.
    """

    name: str = ""
    model: str = ""
    tokens: int = 0
    bytes: int = 0
    created_unix_s: float = 0.0
    updated_unix_s: float = 0.0
    turns: int = 0
    messages: int = 0
    busy: bool = False
    forked_from: str = ""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class SessionMessage:
    """Something that was said; `tokens` are an answer's ids as they were generated."""

    role: str = ""
    content: str = ""
    turn: int = 0
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class SessionTurn:
    """How one question was answered; `sampler_json` is the sampler that was in force."""

    turn: int = 0
    model: str = ""
    at_unix_s: float = 0.0
    finish_reason: str = ""
    stop_origin: str = ""
    usage: Usage = field(default_factory=Usage)
    sampler_json: str = ""


@dataclass(frozen=True)
class SessionShown:
    """A session with all that was said."""

    session: Session = field(default_factory=Session)
    messages: tuple[SessionMessage, ...] = ()
    turns: tuple[SessionTurn, ...] = ()


@dataclass(frozen=True)
class SessionRemoved:
    """A session that is gone, as it was."""

    session: Session = field(default_factory=Session)
    bytes_freed: int = 0
