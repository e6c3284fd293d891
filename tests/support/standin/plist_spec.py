"""Reads a property list as launchd would (launchd.plist(5)). A key that is not honoured here is refused, so that no
test passes on a key that nobody looked at.
"""

from __future__ import annotations

import os
import plistlib
import stat
from pathlib import Path
from typing import Any

from support.standin.spec import JobSpec, Restart, Unreadable

_HONOURED = {
    "Label", "ProgramArguments", "EnvironmentVariables", "WorkingDirectory", "RunAtLoad", "KeepAlive",
    "ThrottleInterval", "ExitTimeOut", "ProcessType", "LimitLoadToSessionType", "SoftResourceLimits",
    "HardResourceLimits", "StandardOutPath", "StandardErrorPath", "Umask", "AbandonProcessGroup",
}  # fmt: skip
_TYPES = {"Adaptive", "Background", "Interactive", "Standard"}


def read_plist_spec(path: Path) -> JobSpec:
    """The job in a file. Raises Unreadable; launchd takes no file that others may write."""
    found = os.stat(path)
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise Unreadable("owner or mode")
    try:
        keys: dict[str, Any] = plistlib.loads(path.read_bytes())
    except (plistlib.InvalidFileException, ValueError) as error:
        raise Unreadable(str(error)) from None
    if strange := set(keys) - _HONOURED:
        raise Unreadable(f"keys {sorted(strange)}")
    argv = tuple(keys["ProgramArguments"])
    if not argv[0].startswith("/"):
        raise Unreadable("program is no absolute path")
    if keys.get("ProcessType", "Standard") not in _TYPES:
        raise Unreadable("ProcessType")
    session = keys.get("LimitLoadToSessionType", "Aqua")
    return JobSpec(
        label=keys["Label"],
        path=path,
        argv=argv,
        environment=keys.get("EnvironmentVariables", {}),
        cwd=keys.get("WorkingDirectory", "/"),
        stdout=keys.get("StandardOutPath", "/dev/null"),
        stderr=keys.get("StandardErrorPath", "/dev/null"),
        run_at_load=keys.get("RunAtLoad", False),
        restart=_restart(keys.get("KeepAlive", False)),
        throttle_s=keys.get("ThrottleInterval", 10),
        exit_s=keys.get("ExitTimeOut", 20),
        files=(_files(keys, "SoftResourceLimits"), _files(keys, "HardResourceLimits")),
        umask=keys.get("Umask", 0o022),
        sessions=(session,) if isinstance(session, str) else tuple(session),
        process_type=keys.get("ProcessType", "Standard"),
        abandon_group=keys.get("AbandonProcessGroup", False),
    )


def _restart(keep: bool | dict[str, bool]) -> Restart:
    if isinstance(keep, bool):
        return "always" if keep else "never"
    if keep == {"SuccessfulExit": False}:
        return "unless it ended well"
    if keep == {"Crashed": True}:
        return "when it crashed"
    raise Unreadable(f"KeepAlive {keep}")


def _files(keys: dict[str, Any], kind: str) -> int | None:
    limits = keys.get(kind, {})
    if set(limits) - {"NumberOfFiles"}:
        raise Unreadable(kind)
    number = limits.get("NumberOfFiles")
    return None if number is None else int(number)
