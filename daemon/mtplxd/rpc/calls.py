"""Who a call is: its request id for logs and answers, and the requests that have yet to reach the engine."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Coroutine, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mtplxd.engine.request import INTERACTIVE
from mtplxd.errors import Cancelled, MtplxError, ResourceExhausted

T = TypeVar("T")

RETRY_S = 1.0

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""The id of the call that the running task serves; log records carry it."""


def new_request_id() -> str:
    """Twelve hex digits, unique for practical purposes."""
    return secrets.token_hex(6)


@dataclass(slots=True)
class EarlyCall:
    """A generation that loads its model or is being tokenised; `waits_for` says in words for what."""

    id: str
    client: str
    model: str
    priority: str = INTERACTIVE
    state: str = "load"
    waits_for: str = "its model"
    since: float = field(default_factory=time.monotonic)
    _error: MtplxError | None = None
    _task: asyncio.Task[Any] | None = None

    def cancel(self, origin: str) -> None:
        """Ends it; whoever awaits `run` gets Cancelled with the origin."""
        self.fail(Cancelled("the request was cancelled", f"by {origin}", "send it again"))

    def fail(self, error: MtplxError) -> None:
        """Ends it; whoever awaits `run` gets the error. The first one counts."""
        self._error = self._error or error
        if self._task is not None:
            self._task.cancel()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits the work so that `cancel` and `fail` can end it. Raises what they say."""
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._task = task
        try:
            return await task
        except asyncio.CancelledError:
            if self._error is not None:
                raise self._error from None
            raise
        finally:
            self._task = None


class EarlyCalls:
    """Every generation before the engine has it, within the queue's bounds. Used on the event loop only."""

    def __init__(self, limit: int = 64, client_limit: int | None = None) -> None:
        self._limit, self._client_limit = limit, limit if client_limit is None else client_limit
        self._calls: dict[str, EarlyCall] = {}

    @contextlib.contextmanager
    def enter(self, call: EarlyCall) -> Iterator[EarlyCall]:
        """For as long as the call is on its way. Raises ResourceExhausted where too many are."""
        own = sum(other.client == call.client for other in self._calls.values())
        if own >= self._client_limit:
            raise _full("too many requests of one client wait", own, self._client_limit)
        if len(self._calls) >= self._limit:
            raise _full("the queue is full", len(self._calls), self._limit)
        self._calls[call.id] = call
        try:
            yield call
        finally:
            self._calls.pop(call.id, None)

    def all(self) -> list[EarlyCall]:
        return list(self._calls.values())

    def cancel(self, call_id: str, origin: str) -> bool:
        """False when there is no such call here."""
        call = self._calls.get(call_id)
        if call is None:
            return False
        call.cancel(origin)
        return True


def _full(what: str, count: int, limit: int) -> ResourceExhausted:
    return ResourceExhausted(
        what, f"{count} of {limit}", "try again in a moment", needed=1, available=0, retry_after_s=RETRY_S
    )
