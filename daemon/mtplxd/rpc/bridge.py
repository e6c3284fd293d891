"""Hands events from any thread to one consumer on the event loop, bounded. It knows no event's meaning."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Bridge(Generic[T]):
    """A queue with one consumer. Made on the loop; `put` and `finish` may be called from any thread.

    At `bound` unread items either the oldest goes (`on_overflow` None: progress, whose newest counts), or
    later ones are dropped and `on_overflow` is called once, on the loop. What `finish` puts always arrives.
    """

    def __init__(self, bound: int, on_overflow: Callable[[], object] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._bound, self._on_overflow = bound, on_overflow
        self._items: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self.overflowed = False

    def put(self, item: T) -> None:
        """Hand over one item; never blocks."""
        self._hand_over(item, False)

    def finish(self, item: T) -> None:
        """Hand over the last item."""
        self._hand_over(item, True)

    async def get(self) -> T:
        """The next item, in order."""
        while not self._items:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._items.popleft()

    def close(self) -> None:
        """The consumer is gone: what comes later is dropped."""
        self._closed = True
        self._items.clear()

    def _hand_over(self, item: T, last: bool) -> None:
        try:
            self._loop.call_soon_threadsafe(self._push, item, last)
        except RuntimeError:  # the loop is closed, so is the consumer
            self._closed = True

    def _push(self, item: T, last: bool) -> None:
        if self._closed or not (last or self._make_place()):
            return
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _make_place(self) -> bool:
        if len(self._items) < self._bound and not self.overflowed:
            return True
        if self._on_overflow is None:
            self._items.popleft()
            return True
        if not self.overflowed:
            self.overflowed = True
            self._on_overflow()
        return False
