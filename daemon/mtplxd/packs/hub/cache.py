"""Hugging Face's cache as it lies on the disk: snapshots and blobs found and used in place, never changed.

Other tools fill it and clear it; nothing here writes to it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mtplxd.packs.hub.names import RepositoryName

ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""How the Hub names content: git's name for a file, or the sha256 of one in LFS."""


def find_snapshot(name: RepositoryName, cache: Path) -> Path | None:
    """The folder of a repository's files at its revision, as last fetched by whatever tool; maybe not all of them."""
    folder = _folder(name, cache)
    commit = name.commit
    if commit is None:
        try:
            commit = (folder / "refs" / name.revision).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
    snapshot = folder / "snapshots" / commit
    return snapshot if commit == Path(commit).name and snapshot.is_dir() else None


def is_snapshot(folder: Path) -> bool:
    """Whether a folder is one of a cache's snapshots, by its place."""
    return folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")


def list_snapshot(snapshot: Path) -> dict[str, Path]:
    """Its files that are really there, by name with `/`, and where each one's bytes lie."""
    found = {}
    for folder, _, names in os.walk(snapshot):
        for name in names:
            place = Path(folder, name)
            if place.is_file():
                found[place.relative_to(snapshot).as_posix()] = Path(os.path.realpath(place))
    return found


def find_content(name: RepositoryName, file: str, etag: str, size: int, cache: Path) -> Path | None:
    """Where the cache holds a file of this content, of whichever commit; its hash is for the caller to check."""
    folder = _folder(name, cache)
    copies = (folder / "snapshots").glob(f"*/{file}") if _plain(file) else ()  # where links cannot be made
    for place in (folder / "blobs" / etag, *copies):
        try:
            if place.is_file() and place.stat().st_size == size:
                return Path(os.path.realpath(place))
        except OSError:
            continue
    return None


def _folder(name: RepositoryName, cache: Path) -> Path:
    return cache / f"models--{name.id.replace('/', '--')}"


def _plain(file: str) -> bool:
    return not set(file) & set("*?[]")
