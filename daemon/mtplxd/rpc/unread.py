"""Answers that have ended and that their clients do not read: how many are kept for them. Pure policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

KEPT = 32
"""A client that stops reading for a while, such as one in a stopped pipe, finds its answer later; not any number."""
PATIENCE_S = 10.0
"""An answer that ended more recently is on its way and counts as read."""


class Ended(Protocol):
    """An open answer. `over_since` is when the engine was done with it, None before."""

    @property
    def over_since(self) -> float | None: ...


A = TypeVar("A", bound=Ended)


def whom_to_give_up(answers: Iterable[A], now: float, kept: int = KEPT) -> list[A]:
    """The unread ones beyond those that are kept: they are given up in the order they ended."""
    ended = [(one.over_since, one) for one in answers if one.over_since is not None]
    unread = sorted((since, at) for at, (since, _) in enumerate(ended) if now - since > PATIENCE_S)
    return [ended[at][1] for _, at in unread[: max(0, len(unread) - kept)]]
