"""The caches that can be given back when memory is short, and how: on the engine thread, between two rounds.

When, and how much of it, is policy's.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from mtplxd.platform.device import DeviceMemory
from mtplxd.residency.loader import give_back

REASON = "giving memory back"


class Engine(Protocol):
    """The part of the engine that owns them."""

    def call(self, fn: Callable[[], Any], reason: str) -> Future[Any]: ...

    def drop_kept(self, drop: Callable[[Any], int]) -> Future[int]: ...


class Holdings:
    """MLX's cache, and what is kept of prompts in memory."""

    def __init__(self, engine: Engine, kept: Callable[[], int], device: Callable[[], DeviceMemory]) -> None:
        self._engine, self._kept, self._device = engine, kept, device

    def cache_bytes(self) -> int:
        """What the allocator keeps for the next arrays."""
        return self._device().cache

    def kept_bytes(self) -> int:
        """What is kept of prompts in memory; on disk it stays."""
        return self._kept()

    def give_back(self, *, kept: int) -> Future[Any]:
        """So many bytes kept of prompts, the least recently used first, and all of the cache. Raises Unavailable."""
        if kept:
            self._engine.drop_kept(lambda prefixes: prefixes.give_up(kept))
        return self._engine.call(give_back, REASON)
