"""The end of a growing text file, and what is added to it, across rotation."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

POLL_S = 0.2


def read_lines(
    path: Path, last: int, follow: bool, wait: Callable[[], None] = lambda: time.sleep(POLL_S)
) -> Iterator[str]:
    """The `last` lines, and with `follow` every line added from then on, for ever.

    A line is given once it is whole; a rotated or shortened file is read from its beginning. `wait` is called
    whenever there is nothing new.
    """
    file = _open(path)
    try:
        recent = deque(file, maxlen=last + 1)
        part = recent.pop() if recent and not recent[-1].endswith("\n") else ""
        yield from (line.rstrip("\n") for line in list(recent)[max(0, len(recent) - last) :])
        if part and not follow:
            yield part
        while follow:
            piece = file.readline()
            part += piece
            if part.endswith("\n"):
                yield part.rstrip("\n")
                part = ""
            elif not piece and _is_replaced(path, file):
                file.close()
                file = _open(path)
                part = ""
            elif not piece:
                wait()
    finally:
        file.close()


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace")


def _is_replaced(path: Path, file: TextIO) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:  # between the two steps of a rotation
        return False
    held = os.fstat(file.fileno())
    return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino) or now.st_size < file.tell()
