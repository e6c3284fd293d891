"""The store on disk, as everybody else sees it: blocks are offered, looked up, read back, and thrown away by policy.

It owns the order of things: what is in memory, what the writer does, what counts as kept. How a block becomes a file is
`codec`'s and `blockfile`'s, how files are touched `filing`'s, what must go `limits`'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mtplxd.store.blocks import BlockBytes, Kept, Offered
from mtplxd.store.limits import Limits


@dataclass(frozen=True, slots=True)
class DiskCounts:
    """What is kept, in `blocks`, bytes of files and bytes of tensors (`raw_bytes`), and sums since the start.

    `miss_reasons` and `drop_reasons` count by the words of MISSES and DROPS. `state` is `opening`, `ready`, `degraded`
    (`reason` says why; reads go on) or `closed`. `waiting` are the bytes not yet written.
    """

    blocks: int = 0
    nbytes: int = 0
    raw_bytes: int = 0
    hits: int = 0
    misses: int = 0
    miss_reasons: dict[str, int] = field(default_factory=dict)
    drop_reasons: dict[str, int] = field(default_factory=dict)
    evicted: int = 0
    quarantined: int = 0
    reclaimed: int = 0
    bytes_written: int = 0
    waiting: int = 0
    state: str = "opening"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of looking at every block. `bad` were quarantined."""

    blocks: int
    nbytes: int
    bad: int


class DiskStore:
    """Blocks below `folder`, safe from any thread. Nothing is raised for what the disk does: it is counted and named.

    `busy` tells whether somebody decodes right now, who must not be slowed down; `lower_priority` is called once on
    the writer's thread.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        *,
        busy: Callable[[], bool] = lambda: False,
        lower_priority: Callable[[], None] = lambda: None,
    ) -> None: ...

    def offer(self, offered: Offered) -> bool:
        """Takes a block to be written; never waits. False where it is dropped, which is counted with its reason.
        True also where it is kept already. Raises ValueError for a name that is not that of its tokens."""

    def find(self, name: bytes) -> Kept | None:
        """What is known of a block that can be read, from memory. Counts nothing."""

    def tails(self, parent: bytes) -> list[Kept]:
        """The tails behind a block, or behind an identity, the longest first, from memory."""

    def roots(self, tokens: Sequence[int]) -> list[Kept]:
        """The first blocks of just these tokens, of any identity: what tells another model's from never seen."""

    def why(self, name: bytes) -> str:
        """Why a block is not there, one of MISSES: `new` where nothing is known of it."""

    def read(self, name: bytes, tokens: Sequence[int]) -> BlockBytes | None:
        """The content of a block of these tokens, in fresh memory, every checksum checked; None where it is not to be
        had, which is counted with its reason. Takes milliseconds: never on the engine's thread while a stream runs."""

    @contextmanager
    def holding(self, names: Iterable[bytes]) -> Iterator[None]:
        """While it lasts these blocks are not evicted; they are the latest used then. Unknown names are passed over."""
        yield

    def room(self) -> int:
        """Bytes of tensors that may be offered now without being dropped."""

    def counts(self) -> DiskCounts:
        """What is kept and what came of it, as of now."""

    def verify(self, progress: Callable[[int, int], bool] = lambda _done, _all: True) -> Verified:
        """Reads and checks every block; `progress(done, all)` hears of each and stops it with False."""

    def prune(self) -> int:
        """Removes what nobody can use: what was quarantined, leftovers, blocks whose beginning is gone, what is over
        the limits. Gives the bytes it freed."""

    def discard(self, names: Iterable[bytes]) -> int:
        """Removes these blocks, waiting ones included; gives the bytes it freed."""

    def clear(self) -> int:
        """Removes all blocks, waiting ones included; gives the bytes it freed. Held ones too: they are copies."""

    def flush(self, timeout: float | None = None) -> bool:
        """Waits until all that was offered before is durable or dropped; False where the time (seconds) is over."""

    def recompress(self, idle: Callable[[], bool]) -> int:
        """Packs blocks tighter as long as `idle()`; gives the bytes it freed. Takes long: on a thread of its own."""

    def close(self, timeout: float | None = None) -> bool:
        """Flushes within the time and lets go of the folder; False where something that was offered is lost."""
