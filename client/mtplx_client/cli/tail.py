"""The end of a growing text file, and what is added to it, across rotation."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.2


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` whole lines."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=count)]


def new_lines(path: Path, pause: float = POLL_S) -> Iterator[str]:
    """Lines added from now on, for ever; a rotated or shortened file is read from its beginning."""
    file = path.open(encoding="utf-8", errors="replace")
    file.seek(0, os.SEEK_END)
    part = ""
    try:
        while True:
            piece = file.readline()
            if piece:
                part += piece
                if part.endswith("\n"):
                    yield part.rstrip("\n")
                    part = ""
                continue
            if _is_replaced(path, file.fileno(), file.tell()):
                file.close()
                file = path.open(encoding="utf-8", errors="replace")
                part = ""
                continue
            time.sleep(pause)
    finally:
        file.close()


def _is_replaced(path: Path, descriptor: int, offset: int) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino) or now.st_size < offset
