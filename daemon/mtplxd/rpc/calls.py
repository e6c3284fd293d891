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

from mtplxd.errors import Cancelled

T = TypeVar("T")

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""The id of the call that the running task serves; log records carry it."""


def new_request_id() -> str:
    """Twelve hex digits, unique for practical purposes."""
    return secrets.token_hex(6)


@dataclass(slots=True)
class EarlyCall:
    """A generation that loads its model or is being tokenised."""

    id: str
    client: str
    model: str
    state: str = "load"
    since: float = field(default_factory=time.monotonic)
    origin: str = ""
    _task: asyncio.Task[Any] | None = None

    def cancel(self, origin: str) -> None:
        """Ends it; whoever awaits `run` gets Cancelled with the origin."""
        self.origin = self.origin or origin
        if self._task is not None:
            self._task.cancel()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits the work so that `cancel` can end it. Raises Cancelled naming the origin."""
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._task = task
        try:
            return await task
        except asyncio.CancelledError:
            if self.origin:
                raise Cancelled("the request was cancelled", f"by {self.origin}", "send it again") from None
            raise
        finally:
            self._task = None


class EarlyCalls:
    """Every generation before the engine has it. Used on the event loop only."""

    def __init__(self) -> None:
        self._calls: dict[str, EarlyCall] = {}

    @contextlib.contextmanager
    def enter(self, call: EarlyCall) -> Iterator[EarlyCall]:
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
