"""How a repository of the Hub is written, `org/name` or `org/name@revision`, and which folder a pull gives it.

Text alone: it asks no network and no disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mtplxd.errors import InvalidArgument

DEFAULT_REVISION = "main"
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_WRITTEN = re.compile(rf"(?P<id>{_PART}/{_PART})(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]{{0,99}}))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHOWN = 100


@dataclass(frozen=True)
class RepositoryName:
    """One repository at a branch, tag or commit. `id` is `org/name`."""

    id: str
    revision: str = DEFAULT_REVISION

    def __str__(self) -> str:
        return self.id if self.revision == DEFAULT_REVISION else f"{self.id}@{self.revision}"

    @property
    def folder(self) -> str:
        """Name of the folder that holds it among the home's packs; two names never share one."""
        return str(self).replace("/", "--")

    @property
    def commit(self) -> str | None:
        """The revision where it is a commit already, which never changes."""
        return self.revision if _COMMIT.fullmatch(self.revision) else None


def find_repository(name: str) -> RepositoryName | None:
    """What a user's `org/name` or `org/name@revision` means; None for a name of another form."""
    found = _WRITTEN.fullmatch(name)
    if found is None or "--" in name or ".." in name or "//" in name or name.endswith(("/", ".git", ".lock")):
        return None
    return RepositoryName(found["id"], found["revision"] or DEFAULT_REVISION)


def parse_repository(name: str) -> RepositoryName:
    """The same, for a name that must be a repository's. Raises InvalidArgument."""
    found = find_repository(name)
    if found is None:
        shown = name if name.isprintable() and len(name) <= _SHOWN else f"{name[:_SHOWN]!a}…"
        raise InvalidArgument("no name of a repository", shown, "write org/name or org/name@revision")
    return found
