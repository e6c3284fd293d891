"""What has arrived of files that another process is fetching: they grow, and are renamed when they are whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def largest(files: Iterable[Path]) -> int:
    """Bytes of the largest; one that has got its name since it was listed counts nothing."""
    return max(map(_size, files), default=0)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
