"""Looks at the system's memory now and then, and has given back what policy says. It decides nothing itself.

What holds arrays is given back on the engine thread between two rounds, a model by the thread that loads and unloads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from mtplxd.errors import Unavailable
from mtplxd.platform.pressure import Pressure, read_pressure
from mtplxd.residency.plan import margin_bytes
from mtplxd.residency.pressure import PATIENCE_S, Idle, Level, Relief, Surplus, choose_relief, judge

log = logging.getLogger(__name__)


class Models(Protocol):
    """The part of residency that memory pressure touches."""

    budget: int
    level: Level

    def idle(self) -> list[Idle]: ...

    def unload_idle(self, key: str) -> Future[Any] | None: ...


class Holder(Protocol):
    """Who holds caches: how much, and what gives it back at a safe point."""

    def cache_bytes(self) -> int: ...

    def kept_bytes(self) -> int: ...

    def give_back(self, *, kept: int) -> Future[Any]: ...


class Readings(Protocol):
    """Readings in bytes. `cheap_free` is None where asking costs too much to do it often."""

    total: int

    def cheap_free(self) -> int | None: ...

    def used(self) -> int: ...


@dataclass(frozen=True)
class GuardView:
    """What status shows: the level and what it was read from, what went last, and how often anything did."""

    level: Level = Level.NORMAL
    reading: str = ""
    last: str = ""
    steps: int = 0


class Guard:
    """Used from any one thread at a time."""

    def __init__(
        self,
        models: Models,
        memory: Readings,
        holder: Holder,
        *,
        read: Callable[[], Pressure] = read_pressure,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._models, self._memory, self._holder = models, memory, holder
        self._read, self._clock = read, clock
        self._step, self._stepped = 0, 0.0
        self._under_way: list[Future[Any]] = []
        self.view = GuardView()

    def look(self) -> None:
        """Reads, judges, and gives back where it is time; to be called every few seconds. Never waits."""
        reading, memory = self._read(), self._memory
        over = memory.used() - self._models.budget
        level = judge(reading, memory.cheap_free(), margin_bytes(memory.total), over)
        self._note(level, reading.words or (f"{over} bytes over the budget" if over > 0 else ""))
        self._models.level = level
        now = self._clock()
        if level is Level.NORMAL:
            self._step = 0
            return
        due = self._step == 0 or level is Level.CRITICAL or now - self._stepped >= PATIENCE_S
        if due and all(future.done() for future in self._under_way):
            self._take_step(level, now)

    def _take_step(self, level: Level, now: float) -> None:
        there = Surplus(self._holder.cache_bytes(), self._holder.kept_bytes(), self._models.idle())
        relief = choose_relief(level, self._step, there)
        self._step, self._stepped = self._step + 1, now
        if relief:
            self._give(relief)

    def _give(self, relief: Relief) -> None:
        self._under_way, words = [], list[str]()
        if relief.cache or relief.kept:
            try:
                self._under_way.append(self._holder.give_back(kept=relief.kept))
            except Unavailable:  # the daemon stops
                return
            words += ["the allocator's cache"] if relief.cache else []
            words += [f"{relief.kept} bytes kept of prompts"] if relief.kept else []
        if relief.evict is not None and (going := self._models.unload_idle(relief.evict)) is not None:
            self._under_way.append(going)
            words.append(f"model {relief.evict.rsplit('/', 1)[-1]}")
        if words:
            said = ", ".join(words)
            log.warning("memory is short (%s), given back: %s", self.view.level.name.lower(), said)
            self.view = GuardView(self.view.level, self.view.reading, said, self.view.steps + 1)

    def _note(self, level: Level, reading: str) -> None:
        if level != self.view.level:
            log.warning("memory pressure is %s now: %s", level.name.lower(), reading or "by free memory")
        self.view = GuardView(level, reading, self.view.last, self.view.steps)
