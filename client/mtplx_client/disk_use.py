"""What the daemon's home takes of the disk, by folder and by pack. Looks only, and follows no link."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from mtplxd.paths import Home

_BLOCK = 512
"""What `st_blocks` counts in, whatever the file system's own size."""


@dataclass(frozen=True)
class Use:
    """Bytes on the disk; `free` of the disk that the home is on. A file with two names counts once."""

    path: Path
    packs: int
    store: int
    logs: int
    runs: int
    other: int
    each_pack: dict[str, int]
    free: int

    @property
    def total(self) -> int:
        return self.packs + self.store + self.logs + self.runs + self.other


def measure_use(home: Home) -> Use:
    """Looks at every file below a home; one that cannot be looked at counts nothing."""
    seen: set[tuple[int, int]] = set()
    packs = _children(home.packs)
    each = {pack.name: _bytes(pack, seen) for pack in packs}
    folders = {path: _bytes(path, seen) for path in (home.packs, home.store, home.logs, home.runs)}
    other = sum(_bytes(path, seen) for path in _children(home.root) if path not in folders)
    return Use(
        home.root,
        sum(each.values()) + folders[home.packs],
        folders[home.store],
        folders[home.logs],
        folders[home.runs],
        other,
        each,
        shutil.disk_usage(_nearest(home.root)).free,
    )


def _bytes(path: Path, seen: set[tuple[int, int]]) -> int:
    try:
        total = _own(path, seen)
        if path.is_dir() and not path.is_symlink():
            total += sum(_bytes(child, seen) for child in _children(path))
    except OSError:
        return 0
    return total


def _own(path: Path, seen: set[tuple[int, int]]) -> int:
    found = os.lstat(path)
    name = (found.st_dev, found.st_ino)
    if name in seen:
        return 0
    seen.add(name)
    return found.st_blocks * _BLOCK


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _nearest(place: Path) -> Path:
    while not place.exists():
        place = place.parent
    return place
