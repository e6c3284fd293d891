"""A job as a LaunchAgent's property list. Pure: no file is written and launchd is not asked."""

from __future__ import annotations

import plistlib
from importlib.resources import files
from typing import Any

from mtplx_launchd.job import Job

AQUA, BACKGROUND = "Aqua", "Background"
"""Session types: of whoever is logged in at the screen, and of a user who is not."""


def render_plist(job: Job, session: str) -> bytes:
    """The property list for one session type; in both, two daemons would fight for one socket.

    The version is written down too: after an update the file is another one, so it is read anew.
    """
    values = {"label": job.label, "home": str(job.home), "errors": str(job.errors), "session": session}
    template = (files(__package__) / "templates" / "agent.plist").read_bytes()
    found: dict[str, Any] = {name: _fill(value, values) for name, value in plistlib.loads(template).items()}
    found["ProgramArguments"] = list(job.arguments)
    found["EnvironmentVariables"] = dict(job.environment)
    found["ThrottleInterval"] = job.throttle_s
    found["ExitTimeOut"] = job.exit_s
    head, end, rest = plistlib.dumps(found, sort_keys=False).partition(b"<plist ")
    return head + f"<!-- mtplxd {job.version} -->\n".encode() + end + rest


def read_arguments(plist: bytes) -> list[str]:
    """The command line in a property list, [] where it has none or is not one."""
    try:
        found = plistlib.loads(plist).get("ProgramArguments", [])
    except (plistlib.InvalidFileException, ValueError, AttributeError):
        return []
    return [str(argument) for argument in found] if isinstance(found, list) else []


def _fill(value: Any, values: dict[str, str]) -> Any:
    """A text of the template with its one placeholder filled in; everything else as it is."""
    if isinstance(value, str) and value.startswith("${"):
        return values[value[2:-1]]
    return value
