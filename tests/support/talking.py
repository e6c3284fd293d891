"""Turns of sessions for tests: what was asked, an answer, and ids that go on from those before."""

from __future__ import annotations

from mtplxd.store.conversation import Conversation, Message, Numbers, Summary, Turn
from mtplxd.store.sessions import Sessions


def turn(
    asked: str, answer: str, before: Conversation | None = None, *, model: str = "m", **numbers: str
) -> Turn:
    """A turn that goes on behind all ids of `before`; one id a character."""
    chain = before.chain if before else ()
    prompt = (*chain, *map(ord, asked))
    return Turn((Message("user", asked),), answer, prompt, tuple(map(ord, answer)), Numbers(model, **numbers))


def say(sessions: Sessions, name: str, asked: str, answer: str, fork: str = "") -> int:
    """Keeps a turn of the session as it is now."""
    before = sessions.read(name) or Conversation(Summary(name))
    return sessions.commit(before, turn(asked, answer, before), fork)


def said(sessions: Sessions, name: str) -> list[str]:
    """All that was said."""
    found = sessions.read(name)
    return [message.content for message in found.messages] if found else []
