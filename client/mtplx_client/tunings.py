"""What a tuning answers: frozen dataclasses, their fields named as on the wire.

Owns no wire format and no display.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mtplx_client.events import Sampler
from mtplx_client.measurements import Machine
from mtplx_client.requests import AUTO


@dataclass(frozen=True)
class TuneRow:
    """What a depth came to beside plain decoding: `ratio` with the ends of its 95 % interval, 0 and empty where too few
    prompts have both. With `auto` the depth was chosen as the text went, and `depth` is 0.
    """

    depth: int = 0
    auto: bool = False
    tok_s: float = 0.0
    ratio: float = 0.0
    ci95: tuple[float, ...] = ()
    tokens_per_round: float = 0.0
    acceptance_by_position: tuple[float, ...] = ()
    round_ms: float = 0.0
    rounds: int = 0
    prompts: int = 0
    suite: str = ""
    context: int = 0
    fan_mode: str = ""
    thermal: str = ""
    power: str = ""

    @property
    def asked(self) -> int | str:
        """The depth that was asked for."""
        return AUTO if self.auto else self.depth


@dataclass(frozen=True)
class Drift:
    """Plain decoding at a run's start, middle and end, tokens a second; `change` is a signed share of the start."""

    start: float = 0.0
    middle: float = 0.0
    end: float = 0.0
    change: float = 0.0
    held_s: float = 0.0
    took_s: float = 0.0
    throttled: bool = False


@dataclass(frozen=True)
class TuneDecision:
    """The verdict: depth_wins, no_depth_beats_plain, acceptance_collapsed, no_baseline or throttled.

    `cleared` says that the winner of an earlier run went.
    """

    depth: int | None = None
    auto: bool = False
    saved: bool = False
    cleared: bool = False
    verdict: str = ""
    message: str = ""

    @property
    def chosen(self) -> int | str | None:
        """The winner, None without one."""
        return AUTO if self.auto else self.depth


@dataclass(frozen=True)
class Tuning:
    """A whole tuning. `cached` = it was measured before, at `measured_at`, with the same settings and versions."""

    model: str = ""
    machine: Machine = field(default_factory=Machine)
    key: str = ""
    rows: tuple[TuneRow, ...] = ()
    drift: Drift = field(default_factory=Drift)
    decision: TuneDecision = field(default_factory=TuneDecision)
    sampler: Sampler = field(default_factory=Sampler)
    suite: str = ""
    max_tokens: int = 0
    order: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    measured_at: str = ""
    cached: bool = False
    fingerprint_body: str = ""
    fingerprint_head: str = ""
