"""What builds answer: frozen dataclasses, their fields named as on the wire, and the details that travel as JSON.

Owns no wire format and no display.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtplx_client.measurements import Machine
from mtplx_client.requests import AUTO
from mtplx_client.tunings import Drift, TuneRow

WON = "depth_wins"


@dataclass(frozen=True)
class BuildStep:
    """How far a build is: `progress` is the share of this stage of the step that is done, `eta_s` 0 where nothing is
    known.
    """

    run: str = ""
    step: str = ""
    stage: str = ""
    progress: float = 0.0
    eta_s: float = 0.0
    message: str = ""
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class BuildOutcome:
    """What a build came to. `pack` is empty without a win; `rows` are those of its measurement, none before one."""

    run: str = ""
    name: str = ""
    verdict: str = ""
    failure_reasons: tuple[str, ...] = ()
    pack: str = ""
    message: str = ""
    rows: tuple[TuneRow, ...] = ()
    machine: Machine | None = None
    drift: Drift | None = None
    depth: int | None = None
    auto: bool = False
    notes: tuple[str, ...] = ()
    details_json: str = ""
    took_s: float = 0.0

    @property
    def won(self) -> bool:
        """Whether it made a pack."""
        return self.verdict == WON

    @property
    def chosen(self) -> int | str | None:
        """The winning depth, None without one."""
        return AUTO if self.auto else self.depth

    @property
    def details(self) -> Mapping[str, Any]:
        """What each step found: source, inspection, conversion, head, calibration, training, verification, sealed."""
        return _table(self.details_json)


@dataclass(frozen=True)
class BuildRun:
    """One run: queued, running, interrupted, failed or done; `error` says why. Times are seconds since 1970, `bytes`
    what it takes on disk.
    """

    run: str = ""
    name: str = ""
    source: str = ""
    status: str = ""
    step: str = ""
    progress: float = 0.0
    eta_s: float = 0.0
    message: str = ""
    verdict: str = ""
    failure_reasons: tuple[str, ...] = ()
    error: str = ""
    created_unix_s: float = 0.0
    updated_unix_s: float = 0.0
    resumable: bool = False
    bytes: int = 0


@dataclass(frozen=True)
class RunCancelled:
    """A run that is gone; `stopped` where it was in work."""

    run: str = ""
    stopped: bool = False
    bytes_freed: int = 0


@dataclass(frozen=True)
class Probed:
    """What could be built: forgeable, already_a_pack, no_mtp_head or unsupported_source, and why."""

    verdict: str = ""
    reasons: tuple[str, ...] = ()
    document_json: str = ""

    @property
    def document(self) -> Mapping[str, Any]:
        """All that was found."""
        return _table(self.document_json)


@dataclass(frozen=True)
class Published:
    """A pack on the Hub, or what would be put there."""

    repo: str = ""
    document_json: str = ""

    @property
    def document(self) -> Mapping[str, Any]:
        """All that was done."""
        return _table(self.document_json)


@dataclass(frozen=True)
class Training:
    """How a head is trained; `prompts` is a file's path, `tokens` of data and `steps` 0 are as many as fit."""

    method: str = ""
    prompts: str = ""
    tokens: int = 0
    steps: int = 0
    seed: int = 0


@dataclass(frozen=True)
class BuildOptions:
    """How a pack is built; what is left at its default is the daemon's choice. `overrides` are bits by a
    pattern of layer paths.
    """

    body_bits: int | None = None
    group_size: int = 0
    dtype: str = ""
    overrides: Mapping[str, int] = field(default_factory=dict)
    train: bool = False
    training: Training = field(default_factory=Training)
    quick: bool = False
    depths: tuple[int | str, ...] = ()
    head_bits: int | None = None
    allow_degraded_head: bool = False
    quality_floor: float | None = None
    on_battery: bool = False
    accept_throttled: bool = False
    no_fans: bool = False


def _table(text: str) -> Mapping[str, Any]:
    found: Any = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
