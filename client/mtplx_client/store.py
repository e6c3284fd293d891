"""What calls about the store on disk answer: frozen dataclasses, their fields named as on the wire.

Owns no wire format and no display. Sizes are bytes; sums are since the daemon's start.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """A reason and how often it was met."""

    name: str = ""
    count: int = 0


@dataclass(frozen=True)
class StoreStats:
    """What is kept and what came of it; `state` is on, write-only, off, opening, paused (by a limit) or degraded (by a
    fault), and `reason` says why. `hits` and `misses` count prompts, `miss_reasons` why nothing or no more was found.

    `bytes` are those of the files, `raw_bytes` those of what is in them, `waiting` those on their way there.
    """

    state: str = ""
    reason: str = ""
    folder: str = ""
    blocks: int = 0
    bytes: int = 0
    raw_bytes: int = 0
    hits: int = 0
    misses: int = 0
    miss_reasons: tuple[Reason, ...] = ()
    drop_reasons: tuple[Reason, ...] = ()
    quarantined: int = 0
    evicted: int = 0
    reclaimed: int = 0
    bytes_written: int = 0
    waiting: int = 0
    size_limit: int = 0
    free_floor: int = 0
    hourly_writes: int = 0
    queue_limit: int = 0
    block_tokens: int = 0
    sessions: int = 0
    session_bytes: int = 0
    tokens_found: int = 0
    tokens_from_disk: int = 0
    memory_bytes: int = 0
    block_reads: int = 0
    unread_reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class StoreVerified:
    """What came of reading every block; `bad` ones were set aside."""

    blocks: int = 0
    bytes: int = 0
    bad: int = 0


@dataclass(frozen=True)
class StoreFreed:
    """What was removed."""

    bytes_freed: int = 0
    sessions: int = 0
