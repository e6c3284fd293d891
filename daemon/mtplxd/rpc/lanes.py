"""One thing at a time a client: what many ask of one slow thread is done in turn, whoever asks most.

It runs nothing and orders nothing itself: behind a lane stands an executor, first come first served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Lanes:
    """Used on the event loop only."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def enter(self, client: str) -> AsyncIterator[None]:
        """Waits until nothing else of this client is inside."""
        lock = self._locks.setdefault(client, asyncio.Lock())
        self._users[client] = self._users.get(client, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[client] -= 1
            if not self._users[client]:
                del self._users[client], self._locks[client]

    def __len__(self) -> int:
        """Clients that are inside or wait."""
        return len(self._users)
