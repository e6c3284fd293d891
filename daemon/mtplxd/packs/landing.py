"""How a pull comes to its end: a finished folder takes its place by one rename, and a full disk is one clear error.

What is in the folder is not its matter.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mtplxd.errors import FailedPrecondition, ResourceExhausted
from mtplxd.files import is_full, sync_folder, sync_tree
from mtplxd.packs.resolver import TRASH

OnProgress = Callable[[str, int, int], None]
"""Takes the stage (check, fetch, convert, finish), what is done and how much there is (bytes or tensors)."""

PARTIAL = ".partial-"
"""Begins the name of the folder in which a pull works."""

MORE_SPACE = "free some space and try again, or use a home on another disk"


def move_in(folder: Path, target: Path) -> None:
    """Puts a finished folder in its place, durably; what was there goes when the new one is in."""
    sync_tree(folder)
    if target.exists():
        trash = trash_of(target)
        shutil.rmtree(trash, ignore_errors=True)
        target.rename(trash)
    folder.rename(target)
    sync_folder(target.parent)


def trash_of(target: Path) -> Path:
    """Where what a pull replaces lies until it is deleted."""
    return target.parent / f"{TRASH}{target.name}"


def check_space(needed: int, folder: Path) -> None:
    """Raises ResourceExhausted where the disk of a folder has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceExhausted(
            f"not enough disk space, {_mib(needed)} MiB needed and {free >> 20} MiB free",
            folder,
            MORE_SPACE,
            needed=needed,
            available=free,
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turns errors of the disk into typed ones: ResourceExhausted when it is full, else FailedPrecondition."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            free = shutil.disk_usage(folder).free
            raise ResourceExhausted("the disk is full", folder, MORE_SPACE, available=free) from error
        raise FailedPrecondition(
            "cannot write the pack", error.filename or folder, error.strerror or ""
        ) from error


def _mib(size: int) -> int:
    return -(-size >> 20)
