"""What the store on disk may take, and what must go when it takes more. Pure: sizes, readings, clock are arguments."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes. `size` bounds the whole folder; below `free_floor` free bytes on its volume nothing is written;
    `hourly_writes` bounds what is written within any hour; `queue` what waits for the writer."""

    size: int = 16 * GIB
    free_floor: int = 10 * GIB
    hourly_writes: int = 128 * GIB
    queue: int = 512 << 20
