"""What calls about fans and heat answer: frozen dataclasses, their fields named as on the wire.

Owns no wire format and no display.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fan:
    """One fan, speeds in rpm; `automatic` while the system controls it."""

    rpm: float = 0.0
    target: float = 0.0
    min: float = 0.0
    max: float = 0.0
    automatic: bool = False


@dataclass(frozen=True)
class FanLease:
    """The daemon's lease: seconds until it would end, and what it is for."""

    left_s: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Thermal:
    """`mode` is auto, smart or max; `state` how hot the machine is; `helper` is ready, not-installed, unreachable,
    refused or yielded (another tool has the fans); `fan_state` what it reads: automatic,
    restoring, taking, held, unreadable. `fan_mode` labels a measurement.
    """

    mode: str = ""
    state: str = ""
    helper: str = ""
    fault: str = ""
    fan_state: str = ""
    lease: FanLease | None = None
    fans: tuple[Fan, ...] = ()
    power: str = ""
    fan_mode: str = ""
