"""A job as a supervisor honours it, whatever file it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Restart = Literal["never", "always", "unless it ended well", "when it crashed"]


class Unreadable(Exception):
    """A job's file that the system would refuse, or a key of it that this stand-in does not honour."""


@dataclass(frozen=True)
class JobSpec:
    """Times are seconds as the file says them. `sessions` is empty for systemd."""

    label: str
    path: Path
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    stdout: str = "/dev/null"
    stderr: str = "/dev/null"
    run_at_load: bool = False
    restart: Restart = "never"
    throttle_s: float = 10.0
    exit_s: float = 20.0
    files: tuple[int | None, int | None] = (None, None)
    umask: int = 0o022
    sessions: tuple[str, ...] = ()
    process_type: str = ""
    abandon_group: bool = False
