"""Several caches of one layer that always hold the same positions: they go forward and back together."""

from __future__ import annotations

from collections.abc import Sequence

from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import Array


class PairCache:
    """Stands in for mlx-lm's CacheList: a layer's caches by index, mostly two of them."""

    def __init__(self, *caches: LayerCache) -> None:
        self.caches = caches

    def __getitem__(self, place: int) -> LayerCache:
        return self.caches[place]

    @property
    def lengths(self) -> list[int]:
        """Positions held of each row."""
        return self.caches[0].lengths

    @property
    def offset(self) -> int | Array:
        """Where the next position goes: an integer for one row, int32 [B] for several."""
        return self.caches[0].offset

    def roll_back(self, lengths: Sequence[int]) -> None:
        """Rolls all of them back. Raises ValueError where one cannot."""
        for cache in self.caches:
            cache.roll_back(lengths)

    def fix_window(self, block: int, width: int) -> None:
        """Fixes the window of each."""
        for cache in self.caches:
            cache.fix_window(block, width)

    def make_ready(self, other: PairCache) -> None:
        """Copies ahead what each can."""
        for mine, theirs in zip(self.caches, other.caches, strict=True):
            mine.make_ready(theirs)

    def is_ready(self, other: PairCache) -> bool:
        """Whether each has all that can be copied ahead."""
        return all(mine.is_ready(theirs) for mine, theirs in zip(self.caches, other.caches, strict=True))

    def forget_coming(self) -> None:
        """Who was made ready does not join."""
        for cache in self.caches:
            cache.forget_coming()

    def join(self, other: PairCache) -> None:
        """Appends the rows of each."""
        for mine, theirs in zip(self.caches, other.caches, strict=True):
            mine.join(theirs)

    def leave(self, row: int) -> None:
        """Takes a row out of each; the last one takes its place."""
        for cache in self.caches:
            cache.leave(row)

    def copy_row(self, row: int) -> PairCache:
        """A pair of that one row."""
        return PairCache(*(cache.copy_row(row) for cache in self.caches))

    def read_from(self, body_cache: Sequence[LayerCache]) -> None:
        """Each reads of the body's what it does."""
        for cache in self.caches:
            cache.read_from(body_cache)

    @property
    def state(self) -> list[Array]:
        """The arrays to evaluate, of all of them."""
        return [array for cache in self.caches for array in cache.state]

    @property
    def nbytes(self) -> int:
        """Bytes held by all of them."""
        return sum(cache.nbytes for cache in self.caches)
