"""What a tuned depth is of: the one constructor of its key, from content, machine, versions and sampler.

Nothing of one start is in it: no path, no port, no time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from mtplxd import __version__
from mtplxd.platform.machine import Machine
from mtplxd.tune.facts import mlx_version
from mtplxd.tune.records import tuning_key


@dataclass(frozen=True, slots=True)
class TunedKey:
    """`subject` is what was tuned and where; `versions` may change under a record, which is stale then."""

    subject: str
    versions: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """Both in one."""
        return f"{self.subject}-{_digest(self.versions)[:8]}"


def tuned_key(
    fingerprint_body: str,
    fingerprint_head: str,
    machine: Machine,
    backend: str,
    sampler: Mapping[str, object],
    *,
    mlx: str = "",
    mtplxd: str = __version__,
) -> TunedKey:
    """The key of a pack's tuned depth on this machine; `mlx` defaults to the installed version.

    `sampler` says what of it was asked for and what the pack says, as JSON values.
    """
    learnt = tuning_key(fingerprint_body, fingerprint_head, machine, backend)
    system = machine.os.split(" ")[0]
    subject = _digest([learnt, machine.memory, system, dict(sampler)])[:32]
    return TunedKey(subject, (("os", machine.os), ("mlx", mlx or mlx_version()), ("mtplxd", mtplxd)))


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
