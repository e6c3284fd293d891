"""Whether nobody but root can change what lies at a path: every component up to the root is looked at.

A link is refused wherever it leads: what it names today it need not name tomorrow. Reads only.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mtplxd.errors import FailedPrecondition

_OTHERS = {"site-packages", "dist-packages", "__phello__"}
"""Folders in a standard library that an interpreter under -I and -S never reads."""


@dataclass(frozen=True)
class Trust:
    """Who may own and write: the user, and a group whose right to write does no harm. `top` is where looking ends."""

    owner: int = 0
    group: int = 0
    top: Path = Path("/")

    def check(self, path: Path) -> None:
        """Returns where every component is there, no link, the owner's, and nobody else's to write. Raises
        FailedPrecondition naming the first that is not.
        """
        for part in self._parts(path):
            try:
                found = part.lstat()
            except OSError as error:
                why = error.strerror or "it cannot be read"
                raise FailedPrecondition(
                    "nobody can tell whether root may run it", f"{part}, {why}", "give a path that is there"
                ) from None
            if trouble := self.judge(found):
                raise _refused(part, found, trouble)

    def check_place(self, path: Path) -> None:
        """The same for a path that may not be there yet: what is there of it."""
        known = path
        while not os.path.lexists(known) and known != self.top:
            known = known.parent
        self.check(known)

    def check_tree(self, folder: Path) -> None:
        """The same for all that an isolated interpreter may read below a folder; links there must lead to such."""
        self.check(folder)
        for parent, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name not in _OTHERS]
            for name in (*folders, *files):
                path = Path(parent, name)
                found = path.lstat()
                if stat.S_ISLNK(found.st_mode):
                    self._check_link(path)
                elif trouble := self.judge(found):
                    raise _refused(path, found, trouble)

    def judge(self, found: os.stat_result) -> str:
        """What is wrong with one component, empty where nothing is."""
        if stat.S_ISLNK(found.st_mode):
            return "is a link"
        if found.st_uid != self.owner:
            return f"belongs to user {found.st_uid}"
        if found.st_mode & stat.S_IWOTH:
            return "everybody may write to it"
        if found.st_mode & stat.S_IWGRP and found.st_gid != self.group:
            return f"group {found.st_gid} may write to it"
        return ""

    def _check_link(self, link: Path) -> None:
        target = Path(os.path.realpath(link))
        if target.exists():  # one that leads nowhere is read by nobody
            self.check(target)

    def _parts(self, path: Path) -> list[Path]:
        whole = Path(os.path.abspath(path))
        return [part for part in (*reversed(whole.parents), whole) if part.is_relative_to(self.top)]


def _refused(path: Path, found: os.stat_result, trouble: str) -> FailedPrecondition:
    """Root must not run what somebody else can change."""
    return FailedPrecondition(
        f"not safe to run as root, this {trouble}", path, _fix(path, found.st_mode, trouble)
    )


def _fix(path: Path, mode: int, trouble: str) -> str:
    if stat.S_ISLNK(mode):
        return "give the path that it leads to"
    if mode & stat.S_ISVTX and mode & stat.S_IWOTH:  # /tmp and its like: closed, they are of no use to others
        return "choose a path outside of it"
    if trouble.endswith("may write to it"):
        return f"`sudo chmod go-w {path}`"
    return f"`sudo chown root {path}`"
