"""Named conversations as documents, tables and files. Decides nothing; the times of files and documents are UTC."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mtplx_client.cli.render.table import Column, table
from mtplx_client.cli.render.words import counted, size
from mtplx_client.sessions import Session, SessionMessage, SessionShown, SessionTurn

_COLUMNS = (
    Column("NAME"),
    Column("MODEL"),
    Column("TURNS", True),
    Column("TOKENS", True),
    Column("SIZE", True),
    Column("UPDATED"),
)


def document(found: Session) -> dict[str, Any]:
    """A session without what was said."""
    return {
        "name": found.name,
        "model": found.model or None,
        "tokens": found.tokens,
        "bytes": found.bytes,
        "updated": _utc(found.updated_unix_s),
        "created": _utc(found.created_unix_s),
        "turns": found.turns,
        "messages": found.messages,
        "busy": found.busy,
        "forked_from": found.forked_from or None,
        "notices": list(found.notices),
    }


def whole_document(found: SessionShown) -> dict[str, Any]:
    """A session with all of it."""
    return {
        "sessions": [document(found.session)],
        "conversation": [_message(message) for message in found.messages],
        "turns": [_turn(turn) for turn in found.turns],
    }


def as_json(found: SessionShown) -> str:
    """A session as a file for programs."""
    return json.dumps(whole_document(found), ensure_ascii=False, indent=2) + "\n"


def markdown(found: SessionShown) -> str:
    """A session as a file for people."""
    session = found.session
    facts = [
        f"{counted(session.turns, 'turn')} with {session.model}",
        f"last on {_utc(session.updated_unix_s)}",
    ]
    parts = [f"# {session.name}", ", ".join(facts), *(_section(message) for message in found.messages)]
    return "\n\n".join(parts) + "\n"


def table_of(found: Sequence[Session], color: bool) -> str:
    """The sessions, a line each, and what is to be known of them."""
    if not found:
        return "no sessions yet: begin one with `mtplx chat --session NAME`"
    rows = [
        (
            one.name,
            one.model,
            f"{one.turns}{', busy' if one.busy else ''}",
            str(one.tokens),
            size(one.bytes),
            _local(one.updated_unix_s),
        )
        for one in found
    ]
    notes = [f"{one.name}: {notice}" for one in found for notice in one.notices]
    return "\n".join([table(_COLUMNS, rows, color), *notes])


def shown(found: SessionShown) -> str:
    """One session: a line a fact, then all that was said."""
    session = found.session
    facts = [
        ("name", session.name),
        ("model", session.model),
        ("turns", f"{session.turns}, {session.tokens} tokens"),
        ("size", size(session.bytes)),
        ("begun", _local(session.created_unix_s)),
        ("updated", _local(session.updated_unix_s)),
        ("copy of", session.forked_from),
        ("now", "answers somebody" if session.busy else ""),
    ]
    facts += [("note", notice) for notice in session.notices]
    lines = [f"{name:<10}{value}" for name, value in facts if value]
    return "\n\n".join(["\n".join(lines), *(_section(message) for message in found.messages)])


def _section(message: SessionMessage) -> str:
    return f"## {message.role}\n\n{message.content}"


def _message(message: SessionMessage) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": message.content,
        "turn": message.turn,
        "tokens": list(message.tokens) if message.role == "assistant" else None,
    }


def _turn(turn: SessionTurn) -> dict[str, Any]:
    return {
        "turn": turn.turn,
        "model": turn.model,
        "at": _utc(turn.at_unix_s),
        "finish_reason": turn.finish_reason,
        "stop_origin": turn.stop_origin,
        "usage": asdict(turn.usage),
        "sampler": json.loads(turn.sampler_json or "null"),
    }


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _local(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
