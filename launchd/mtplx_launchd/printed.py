"""Reads what `launchctl print` says of a service. Pure; Apple calls the format no interface: little is taken of it."""

from __future__ import annotations

import re

from mtplx_launchd.backend import Found, State

_FIELD = re.compile(r"^\t(state|pid|last exit code|last terminating signal) = (.*)$", re.MULTILINE)
"""Fields of the service itself stand one tab deep; those of its parts stand deeper."""
_STOPPING = ("SIGTERMed", "SIGKILLed", "draining")


def read_print(text: str, where: str) -> Found:
    """A loaded service as launchctl printed it."""
    fields = {name: value.strip() for name, value in reversed(_FIELD.findall(text))}
    pid = int(fields["pid"]) if fields.get("pid", "").isdigit() else None
    return Found(_state(fields.get("state", ""), pid), pid, _last_exit(fields), where)


def _state(said: str, pid: int | None) -> State:
    if said.startswith(_STOPPING):
        return "stopping"
    return "running" if pid is not None else "waiting"


def _last_exit(fields: dict[str, str]) -> str | None:
    """`0`, `3`, `78: EX_CONFIG` or `Killed: 9`; None before the first end."""
    if signal := fields.get("last terminating signal"):
        return signal
    code = fields.get("last exit code", "")
    return code if code and not code.startswith("(") else None
