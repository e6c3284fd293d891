"""What others see of the engine at one moment: its sums, its requests, how it is. Plain values for any thread."""

from __future__ import annotations

from dataclasses import dataclass

from mtplxd.engine.events import Finished
from mtplxd.engine.ticket import InFlight


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums since `since_unix_s`."""

    since_unix_s: float
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0

    def plus(self, finished: Finished) -> Counters:
        """With one more answer."""
        return Counters(
            self.since_unix_s,
            self.requests + 1,
            self.prompt_tokens + finished.prompt_tokens,
            self.completion_tokens + finished.completion_tokens,
            self.rounds + finished.stats.rounds,
            self.drafted + finished.stats.drafted,
            self.accepted + finished.stats.accepted,
        )


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """What status shows of the engine. `busy_with` names a call that holds it.

    `rows` play rounds, `prefilling` prompts are being read, `set_aside` wait for memory. The engine's thread last told
    that it goes on `heartbeat_age_s` ago. `contexts` are the bytes that the contexts of all rows hold.
    """

    running: int
    waiting: int
    in_flight: tuple[InFlight, ...]
    counters: Counters
    alive: bool
    busy_with: str
    rows: int = 0
    prefilling: int = 0
    set_aside: int = 0
    heartbeat_age_s: float = 0.0
    contexts: int = 0
