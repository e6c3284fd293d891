"""What every group of checks is given: where the daemon lives, the settings in force, the machine as it was probed."""

from __future__ import annotations

from dataclasses import dataclass

from mtplxd.config import Settings
from mtplxd.paths import Home

from mtplx_client.doctor.probes import Probe


@dataclass(frozen=True)
class Situation:
    """One look of the doctor."""

    home: Home
    settings: Settings
    machine: Probe
