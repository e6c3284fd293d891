"""Keys and values of a batch of rows, each row with a length of its own; rolling back is setting a length.

Speaks mlx-lm's cache protocol, so that its model classes run unchanged. Does not know what the rows mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplxd.families.caches.slots import SlotCache
from mtplxd.platform.mlx import Array, mx


class RowCache(SlotCache):
    """One layer's keys and values; position and slot are one. Positions past a row's length are never read."""

    def __init__(self, rows: int = 1) -> None:
        super().__init__(rows)
        self._window: tuple[int, int] | None = None

    def fix_window(self, block: int, width: int) -> None:
        """From now on `width` positions that begin in a block of `block` slots see that block's end, `width` beyond.

        What is seen then depends on the block alone, not on where in it a forward begins. For a single row; longer
        forwards, such as a prefill's, are left as they are.
        """
        self._window = (block, width)

    def update_and_fetch(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Writes [B, heads, L, dim] at each row's length and gives all positions up to the longest row."""
        count = keys.shape[2]
        seen = self._seen(count)
        self.write(keys, values, self.lengths, seen)
        self.lengths = [length + count for length in self.lengths]
        return self.seen(0, seen)

    def make_mask(self, count: int, return_array: bool = False, window_size: int | None = None) -> Any:
        """Who may see whom when `count` positions are about to be added; called before they are."""
        if len(self.lengths) == 1:
            return self._single_mask(count, return_array, window_size)
        places = mx.arange(max(self.lengths) + count)
        own = mx.array(self.lengths)[:, None, None, None] + mx.arange(count)[:, None]
        mask = places <= own
        return mask if window_size is None else mask & (places > own - window_size)

    def roll_back(self, lengths: Sequence[int]) -> None:
        """Sets each row's length. Growing is refused: there is nothing behind it."""
        if any(new > old or new < 0 for new, old in zip(lengths, self.lengths, strict=True)):
            raise ValueError(f"cannot roll {self.lengths} back to {list(lengths)}")
        self.lengths = list(lengths)

    def held(self, count: int) -> tuple[Array, Array]:
        """Keys and values [1, heads, S, dim] of a single row's newest positions, at most `count` of them."""
        first, last = max(self.lengths[0] - count, 0), self.lengths[0]
        return self.keys[:1, :, first:last], self.values[:1, :, first:last]

    @property
    def fixed(self) -> tuple[int, int] | None:
        """Block and width of the window, where it is fixed."""
        return self._window

    def _like_row(self, row: int) -> RowCache:
        copy = RowCache(1)
        copy.lengths, copy._window = [self.lengths[row]], self._window
        return copy

    def _seen(self, count: int) -> int:
        """Slots that a forward of `count` positions attends over."""
        end = max(self.lengths) + count
        if self._window is None or count != self._window[1]:
            return end
        block, width = self._window
        return (self.lengths[0] // block + 1) * block + width

    def _single_mask(self, count: int, return_array: bool, window_size: int | None) -> Any:
        begin, seen = self.lengths[0], self._seen(count)
        if window_size is None and count == 1:
            return_array = False  # one position sees all there is; DeepSeek-V3.2 relies on it
        return_array = return_array or seen != begin + count
        if window_size is not None and begin + count > window_size:
            return_array = True
        if not return_array:
            return "causal" if count > 1 else None
        own, places = mx.arange(begin, begin + count)[:, None], mx.arange(seen)
        mask = places <= own
        return mask if window_size is None else mask & (places > own - window_size)
