"""Keeps a folder its owner's alone: closed to others, out of Time Machine's backups and Spotlight's index on macOS.

Other systems have neither, so there is nothing to leave. It looks into no file.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TMUTIL = "/usr/bin/tmutil"
NEVER_INDEX = ".metadata_never_index"
"""A file of this name tells Spotlight to pass over the folder."""
_COMMAND_S = 20.0
_OTHERS = 0o077


@dataclass(frozen=True)
class Backups:
    """Whose rules hold: this system's, or those of a test. `tmutil` is the program that keeps exclusions."""

    system: str = sys.platform
    tmutil: str = TMUTIL


@dataclass(frozen=True)
class Privacy:
    """How a folder is. `backups` and `search` tell whether it is left out, None where the system has none."""

    closed: bool
    backups: bool | None = None
    search: bool | None = None

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is not as it should be, in words."""
        found = (
            (not self.closed, "others may read it"),
            (self.backups is False, "Time Machine copies it"),
            (self.search is False, "Spotlight indexes it"),
        )
        return tuple(words for bad, words in found if bad)


def keep_private(folder: Path, rules: Backups | None = None) -> Privacy:
    """Does what can be done for a folder that is there, once; how it is then. Raises nothing."""
    rules = rules or Backups()
    try:
        if (mode := folder.stat().st_mode) & _OTHERS:
            folder.chmod(mode & 0o700)
        if rules.system == "darwin" and not (folder / NEVER_INDEX).exists():
            (folder / NEVER_INDEX).touch(0o600)
    except OSError:
        return look(folder, rules)  # a folder that cannot be changed says so itself
    found = look(folder, rules)
    if found.backups is False:
        _run(rules.tmutil, "addexclusion", str(folder))
        found = look(folder, rules)
    return found


def look(folder: Path, rules: Backups | None = None) -> Privacy:
    """How a folder is; one that is missing is private."""
    rules = rules or Backups()
    try:
        closed = not folder.stat().st_mode & _OTHERS
    except OSError:
        return Privacy(True)
    if rules.system != "darwin":
        return Privacy(closed)
    excluded = _run(rules.tmutil, "isexcluded", str(folder)).startswith("[Excluded]")
    return Privacy(closed, excluded, (folder / NEVER_INDEX).exists())


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
