"""Two tiers over a folder, opened as by one process after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtplxd.engine.prefixes import Prefixes
from mtplxd.store.disk import DiskStore
from mtplxd.store.limits import Limits
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.tiers import Tiers

LIMITS = Limits(size=1 << 30, free_floor=0, hourly_writes=1 << 34, queue=1 << 28)
PATIENCE_S = 60.0


class Opened:
    """What one process would have of a store: memory, disk, and the engine's side of both."""

    def __init__(self, folder: Path, block: int = 64, limit: int = 1 << 30, limits: Limits = LIMITS) -> None:
        self.disk = DiskStore(folder, limits)
        self.index: PrefixIndex[Any] = PrefixIndex(limit, block)
        self.tiers: Tiers[Any] = Tiers(self.index, self.disk)
        self.prefixes = Prefixes(self.tiers)

    def settle(self) -> None:
        """All that was to be kept is on disk."""
        assert self.prefixes.flush(PATIENCE_S)
        assert self.disk.flush(PATIENCE_S)

    def forget_memory(self) -> None:
        """What is in memory goes."""
        self.index.shrink(0)

    def close(self) -> None:
        """As at the end of a process."""
        self.settle()
        self.tiers.close()
        assert self.disk.close(PATIENCE_S)
