"""What calls about measuring take and answer: frozen dataclasses, their fields named as on the wire.

Owns no wire format and no display. Times are seconds unless the name says `ms`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mtplx_client.events import Sampler, Stats
from mtplx_client.requests import AUTO


@dataclass(frozen=True)
class Prompt:
    """One prompt of a suite and its seed."""

    index: int = 0
    text: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Suite:
    """The prompts of a measurement."""

    suite: str = ""
    prompts: tuple[Prompt, ...] = ()


@dataclass(frozen=True)
class Run:
    """One timed answer; `first_s` and `last_s` count from the request's begin. With `auto` its depth was chosen as the
    text went, and `depth` is 0.
    """

    prompt: int = 0
    depth: int = 0
    tokens: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    stats: Stats = field(default_factory=Stats)
    ideal_round_ms: float = 0.0
    round_ms: float = 0.0
    auto: bool = False

    @property
    def asked(self) -> int | str:
        """The depth that was asked for."""
        return AUTO if self.auto else self.depth


@dataclass(frozen=True)
class MeasureRow:
    """What one depth came to; 0 = not measured on this path. With `auto` it was chosen, and `depth` is 0."""

    depth: int = 0
    tok_s: float = 0.0
    ratio_vs_plain: float = 0.0
    tokens_per_round: float = 0.0
    acceptance_by_position: tuple[float, ...] = ()
    round_ms: float = 0.0
    ideal_round_ms: float = 0.0
    efficiency: float = 0.0
    rounds: int = 0
    runs: int = 0
    auto: bool = False
    fan_mode: str = ""
    thermal: str = ""
    power: str = ""

    @property
    def asked(self) -> int | str:
        """The depth that was asked for."""
        return AUTO if self.auto else self.depth


@dataclass(frozen=True)
class Machine:
    """Where it was measured."""

    chip: str = ""
    memory: int = 0
    bandwidth_gb_s: float = 0.0
    os: str = ""
    python: str = ""
    mlx: str = ""
    cores: int = 0
    blas: str = ""
    power: str = ""
    thermal: str = ""


@dataclass(frozen=True)
class Measurement:
    """Rows a depth, with all that is needed to judge them."""

    rows: tuple[MeasureRow, ...] = ()
    machine: Machine = field(default_factory=Machine)
    model: str = ""
    sampler: Sampler = field(default_factory=Sampler)
    order: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    suite: str = ""
    max_tokens: int = 0
    notes: tuple[str, ...] = ()
