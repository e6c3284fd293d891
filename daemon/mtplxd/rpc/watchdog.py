"""Whether the engine goes on while it has work: the rule, and what follows for streams and health from it.

The engine tells its heartbeat; what counts as one is its own to say. A dead engine is the daemon's business.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from mtplxd.engine.engine import Engine
from mtplxd.engine.snapshot import EngineSnapshot
from mtplxd.errors import Unavailable
from mtplxd.rpc.generation import Generation
from mtplxd.rpc.server import Server

log = logging.getLogger(__name__)

LONGEST_STEP_S = 5.0
"""Most that counts of the time between two looks: a process that was stopped, or a machine that slept, had no chance
to beat in between.
"""


@dataclass(slots=True)
class StallRule:
    """The engine stalls when it was looked at for `stall_s` seconds, has work, and did not beat."""

    stall_s: float
    _last: float | None = None
    _silent: float = 0.0

    def look(self, now: float, beat_age_s: float, busy: bool) -> bool:
        """Whether it is stalled at `now`; the last beat was `beat_age_s` ago, and `busy` says that there is work."""
        step = 0.0 if self._last is None else now - self._last
        self._last = now
        if not busy:
            self._silent = 0.0
        elif beat_age_s < step:
            self._silent = min(beat_age_s, LONGEST_STEP_S)
        else:
            self._silent += min(step, LONGEST_STEP_S)
        return self._silent >= self.stall_s


class Watchdog:
    """Applies the rule. Used on the event loop only."""

    def __init__(
        self,
        engine: Engine,
        generation: Generation,
        server: Server,
        stall_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._generation, self._server = engine, generation, server
        self._rule, self._clock = StallRule(stall_s), clock
        self.stalled = False

    async def look(self) -> None:
        """Looks once; to be called every second or so."""
        found = self._engine.snapshot()
        stalled = self._rule.look(self._clock(), found.heartbeat_age_s, has_work(found))
        if stalled == self.stalled:
            return
        self.stalled = stalled
        if stalled:
            silent = f"{found.heartbeat_age_s:.0f} s"
            log.critical(
                "the engine has not gone on for %s, busy with: %s", silent, found.busy_with or "rounds"
            )
            self._generation.stall(lambda: stall_error(silent))
        else:
            log.warning("the engine goes on")
            self._generation.recover()
        await self._server.set_serving(not stalled)


def has_work(found: EngineSnapshot) -> bool:
    """Whether somebody waits for the engine."""
    return bool(found.running or found.waiting or found.busy_with)


def stall_error(silent: str) -> Unavailable:
    """What those are told whose streams end by a stall, and those who come then."""
    return Unavailable(
        "the engine does not go on", f"silent for {silent}", "restart the daemon, see `mtplx logs`"
    )
