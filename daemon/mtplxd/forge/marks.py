"""What a step left on disk, read back: size, time and hash of every file, and whether they are still as they were.

The hash is taken once, from the bytes as they lie on the disk; later looks go by size and time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mtplxd.errors import Cancelled, DataLoss
from mtplxd.files import sync_file, sync_folder
from mtplxd.forge.state import FileMark
from mtplxd.packs.fetch import hash_file


def list_files(folder: Path) -> list[str]:
    """Every file below a folder, by relative name with `/`, in order; none where there is no folder."""
    found = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sorted(path.relative_to(folder).as_posix() for path in found)


def mark_files(
    folder: Path,
    names: Iterable[str],
    cancelled: Callable[[], bool],
    known: Mapping[str, str] | None = None,
) -> dict[str, FileMark]:
    """Makes files durable and reads them back; `known` hashes, by name, are taken as they are.

    Raises DataLoss for one that is not there, Cancelled between two, OSError.
    """
    known = known or {}
    marks = {}
    for name in names:
        if cancelled():
            raise Cancelled("stopped before it was done", name)
        path = folder / name
        if not path.is_file():
            raise DataLoss(
                "a step did not make what it said", name, "this is a fault of mtplxd, please report it"
            )
        if name not in known:
            sync_file(path)
        found = path.stat()
        marks[name] = FileMark(found.st_size, found.st_mtime_ns, known.get(name) or hash_file(path))
    for place in sorted({(folder / name).parent for name in marks if name not in known}):
        sync_folder(place)
    return marks


def unchanged(folder: Path, marks: Mapping[str, FileMark]) -> bool:
    """Whether every file is there with its size and time."""
    return all(_is_same(folder / name, mark) for name, mark in marks.items())


def _is_same(path: Path, mark: FileMark) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (mark.bytes, mark.mtime_ns)
