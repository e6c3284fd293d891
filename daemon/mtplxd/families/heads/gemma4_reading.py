"""The cache of a head that has none: it counts the pairs it was given and reads the target's keys and values.

It holds no arrays. What it reads is what the target's caches hold at that moment, so a draft that begins after a
roll-back never sees a rejected token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from mtplxd.families.caches import RowCache, WindowCache
from mtplxd.families.caches.slots import without
from mtplxd.families.heads.gemma4_layers import SLIDING, Seen
from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import Array, mx

Source = RowCache | WindowCache
"""A cache of the target that can be read beside its own layer."""


class BorrowedCache:
    """Counts `lengths[b]` pairs of row b. `sources` are the target's layers that are read, by kind of layer;
    `window` is how many positions sliding layers see, their own included."""

    def __init__(
        self, rows: int, sources: Mapping[str, int], window: int, body_cache: Sequence[LayerCache]
    ) -> None:
        self.lengths = [0] * rows
        self._layers = sources
        self._window = window
        self.read_from(body_cache)

    def count(self, pairs: int) -> None:
        """Adds as many pairs to every row."""
        self.lengths = [length + pairs for length in self.lengths]

    def position(self, ahead: int) -> int | Array:
        """Where a block stands: at each row's newest slot, or `ahead` behind it. An integer for one row."""
        places = [max(length - 1, 0) + ahead for length in self._held]
        return places[0] if len(places) == 1 else mx.array(places, mx.int32)

    def read(self, ahead: int) -> dict[str, Seen]:
        """What each kind of layer sees now from that position: all of the target's slots, or those in the window."""
        return {kind: self._read(kind, source, ahead) for kind, source in self._sources.items()}

    @property
    def offset(self) -> int | Array:
        """How many pairs there are: an integer for one row, int32 [B] for several."""
        return self.lengths[0] if len(self.lengths) == 1 else mx.array(self.lengths, mx.int32)

    def roll_back(self, lengths: Sequence[int]) -> None:
        """Forgets each row's pairs from `lengths[b]` on."""
        if any(new > old or new < 0 for new, old in zip(lengths, self.lengths, strict=True)):
            raise ValueError(f"cannot roll {self.lengths} back to {list(lengths)}")
        self.lengths = list(lengths)

    def fix_window(self, block: int, width: int) -> None:
        """Nothing to fix: drafts may differ in their last bits, what is committed does not."""

    def make_ready(self, other: BorrowedCache) -> None:
        """There is nothing to copy."""

    def is_ready(self, other: BorrowedCache) -> bool:  # noqa: ARG002 - whoever it is
        """There is nothing to copy."""
        return True

    def forget_coming(self) -> None:
        """Nobody was made ready."""

    def join(self, other: BorrowedCache) -> None:
        """Appends another's counts; what is read are the target's caches here, which its rows join."""
        self.lengths = [*self.lengths, *other.lengths]

    def leave(self, row: int) -> None:
        """Takes a row's count out; the last one takes its place."""
        self.lengths = without(self.lengths, row)

    def copy_row(self, row: int) -> BorrowedCache:
        """The count of that one row. It reads no caches before it is told which."""
        copy = BorrowedCache(1, self._layers, self._window, ())
        copy.lengths = [self.lengths[row]]
        return copy

    def read_from(self, body_cache: Sequence[LayerCache]) -> None:
        """Says which caches are the target's for the same rows."""
        self._sources = (
            {kind: cast(Source, body_cache[layer]) for kind, layer in self._layers.items()}
            if body_cache
            else {}
        )

    @property
    def state(self) -> list[Array]:
        """No arrays."""
        return []

    @property
    def nbytes(self) -> int:
        """None of its own."""
        return 0

    @property
    def _held(self) -> list[int]:
        return next(iter(self._sources.values())).lengths

    def _read(self, kind: str, source: Source, ahead: int) -> Seen:
        """The slots from the first that any row sees to the last written one; a mask where rows see unlike many."""
        lengths = [
            max(length, 1) for length in source.lengths
        ]  # a row without slots looks at one, for nothing
        begins = source.begins if isinstance(source, WindowCache) else [0] * len(lengths)
        firsts = list(begins)
        if kind == SLIDING:
            reach = [max(0, length + ahead - self._window) for length in lengths]
            firsts = [max(near, begin) for near, begin in zip(reach, begins, strict=True)]
        bounds = [
            (first - begin, length - begin)
            for first, length, begin in zip(firsts, lengths, begins, strict=True)
        ]
        low, high = min(first for first, _ in bounds), max(last for _, last in bounds)
        keys, values = source.seen(low, high)
        return Seen(keys, values, None if set(bounds) == {(low, high)} else _between(bounds, low, high))


def _between(bounds: Sequence[tuple[int, int]], low: int, high: int) -> Array:
    """A mask [B, 1, 1, high − low] of the slots inside each row's bounds."""
    slots = mx.arange(low, high)
    first, last = (mx.array(side)[:, None, None, None] for side in zip(*bounds, strict=True))
    return (slots >= first) & (slots < last)
