"""What a verification answers: frozen dataclasses, their fields named as on the wire.

Owns no wire format and no display.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mtplx_client.measurements import Machine


@dataclass(frozen=True)
class Divergence:
    """A text that parts from plain decoding at generated token `position`."""

    prompt: int = 0
    depth: int = 0
    position: int = 0
    margin: float = 0.0
    near_tie: bool = False


@dataclass(frozen=True)
class Identity:
    """Texts at every depth compared with plain decoding."""

    tokens: int = 0
    divergences: int = 0
    near_ties: int = 0
    found: tuple[Divergence, ...] = ()


@dataclass(frozen=True)
class LawTest:
    """The test of the law of sampled tokens."""

    test: str = ""
    tokens: int = 0
    statistic: float = 0.0
    p_value: float = 0.0
    power: float = 0.0
    alternative: str = ""


@dataclass(frozen=True)
class Verification:
    """All that was found; `failures` says why it did not pass, `unrecorded` why a record could not be written.

    `incomplete` is what it left open, so that it is no record though it passed.
    """

    model: str = ""
    shape_noise: float = 0.0
    greedy: Identity = field(default_factory=Identity)
    coupled: Identity = field(default_factory=Identity)
    law: LawTest = field(default_factory=LawTest)
    passed: bool = False
    failures: tuple[str, ...] = ()
    recorded: bool = False
    depths: tuple[int, ...] = ()
    fingerprint_body: str = ""
    fingerprint_head: str = ""
    machine: Machine = field(default_factory=Machine)
    unrecorded: str = ""
    incomplete: str = ""
