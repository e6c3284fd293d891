"""Reads a user unit as systemd would (systemd.service(5), systemd.exec(5)), as far as ours goes; other keys are
refused.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from support.standin.spec import JobSpec, Restart, Unreadable

_HONOURED = {
    "Description", "StartLimitIntervalSec", "Type", "ExecStart", "Environment", "WorkingDirectory", "Restart",
    "RestartSec", "TimeoutStopSec", "LimitNOFILE", "UMask", "StandardOutput", "StandardError", "WantedBy",
}  # fmt: skip
_RESTARTS: dict[str, Restart] = {"no": "never", "always": "always", "on-failure": "unless it ended well"}


def read_unit_spec(path: Path) -> JobSpec:
    """The job in a unit's file. Raises Unreadable."""
    keys: dict[str, str] = {}
    environment: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith(("#", "[")):
            continue
        key, _, value = line.partition("=")
        if key not in _HONOURED:
            raise Unreadable(f"key {key}")
        if key == "Environment":
            for word in _words(value):
                name, _, text = word.partition("=")
                environment[name] = text
        else:
            keys[key] = value
    soft, _, hard = keys.get("LimitNOFILE", "").partition(":")
    return JobSpec(
        label=path.name,
        path=path,
        argv=tuple(word.replace("$$", "$") for word in _words(keys["ExecStart"])),
        environment=environment,
        cwd=keys.get("WorkingDirectory", str(Path.home())).replace("%%", "%"),
        stderr=keys.get("StandardError", "").removeprefix("append:").replace("%%", "%") or "/dev/null",
        restart=_RESTARTS[keys.get("Restart", "no")],
        throttle_s=float(keys.get("RestartSec", "0.1")),
        exit_s=float(keys.get("TimeoutStopSec", "90")),
        files=(int(soft) if soft else None, int(hard or soft) if soft else None),
        umask=int(keys.get("UMask", "0022"), 8),
    )


def _words(text: str) -> list[str]:
    return [word.replace("%%", "%") for word in shlex.split(text)]
