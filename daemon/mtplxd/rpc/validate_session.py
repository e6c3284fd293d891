"""What a client's words on sessions and the store mean, checked before any work. Plain values come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtplxd.engine.request import STORES
from mtplxd.errors import InvalidArgument
from mtplxd.store.conversation import check_name

WAIT, FORK, REFUSE = "wait", "fork", "refuse"
BUSY = (WAIT, FORK, REFUSE)


@dataclass(frozen=True, slots=True)
class AskedSession:
    """The session that a generation goes on with, and what to do while it answers somebody else."""

    name: str
    busy: str = WAIT


def read_session(request: Any) -> AskedSession | None:
    """What a GenerateRequest says of a session, None where it has none. Raises InvalidArgument naming the field."""
    if not request.session:
        if request.session_busy:
            fix = "give session too"
            raise InvalidArgument("session_busy without a session", None, fix, field="session_busy")
        return None
    name = check_name(request.session)
    busy = request.session_busy or WAIT
    if busy not in BUSY:
        fix = f"give {', '.join(BUSY)}"
        raise InvalidArgument("a busy session cannot be met so", busy, fix, field="session_busy")
    if request.raw or request.WhichOneof("input") == "tokens":
        fix = "a session is a chat: give a prompt or messages, without raw"
        raise InvalidArgument("a session goes on with messages", None, fix, field="session")
    if request.HasField("n") and request.n > 1:
        raise InvalidArgument("a session goes on with one answer", request.n, "leave out n", field="n")
    return AskedSession(name, busy)


def read_store(text: str) -> str | None:
    """What a request or load says of the disk, None where it says nothing. Raises InvalidArgument."""
    if not text or text in STORES:
        return text or None
    raise InvalidArgument("the store cannot be used so", text, f"give {', '.join(STORES)}", field="store")
