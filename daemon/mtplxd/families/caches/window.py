"""Keys and values of a layer that attends to a window: the newest positions of each row, and what lies close behind.

Stands in for mlx-lm's RotatingKVCache. That one writes in a ring and cannot go back once it is full; this one keeps
positions in their order, beginning anywhere, so that rolling back is setting a length here too. What has fallen out
of the window is dropped in steps, never one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplxd.families.caches.slots import STEP, SlotCache, extended, whole_steps, without
from mtplxd.platform.mlx import Array, mx

SLACK = 256
"""Positions kept behind the window: how far a row can go back, beside going back to its begin."""


class WindowCache(SlotCache):
    """One layer's keys and values, as many as its window reaches and some behind it.

    Slot s of row b holds position `begins[b] + s`. Slots outside a row's window are never read.
    """

    def __init__(self, rows: int, window: int) -> None:
        super().__init__(rows)
        self.begins = [0] * rows
        self.window = window
        self._fixed: tuple[int, int] | None = None

    def fix_window(self, block: int, width: int) -> None:
        """From now on `width` positions that begin in a block of `block` positions see all that any of them may see.

        What is seen then depends on the block alone, not on where in it a forward begins. For a single row; longer
        forwards, such as a prefill's, are left as they are. Raises ValueError for blocks longer than SLACK.
        """
        if block > SLACK:
            raise ValueError(f"a block of {block} positions begins behind the {SLACK} that are kept")
        self._fixed = (block, width)

    def update_and_fetch(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Writes [B, heads, L, dim] at each row's length and gives the slots that any of them may see."""
        count = keys.shape[2]
        first, last = self._seen(count)
        self.write(keys, values, self.slots, last)
        seen = self.seen(first, last)
        kept = self._reach(self.lengths)
        self.lengths = [length + count for length in self.lengths]
        self._drop_before([begin - SLACK for begin in kept])
        return seen

    def make_mask(self, count: int, return_array: bool = False, window_size: int | None = None) -> Any:
        """Who may see whom when `count` positions are about to be added; called before they are."""
        window = min(window_size or self.window, self.window)
        first, last = self._seen(count)
        alone = len(self.lengths) == 1
        if alone and self._fixed_width != count and last - first <= window:
            if count == 1:
                return None
            if not return_array:
                return "causal"
        own = mx.array(self.slots)[:, None, None, None] + mx.arange(count)[:, None]
        places = mx.arange(first, last)
        mask = (places <= own) & (places > own - window)
        return mask[0, 0] if alone and count > 1 else mask

    def roll_back(self, lengths: Sequence[int]) -> None:
        """Sets each row's length. Growing is refused, and so is going where the window is not kept any more."""
        reach = self._reach(lengths)
        for new, old, begin, first in zip(lengths, self.lengths, self.begins, reach, strict=True):
            if not 0 <= new <= old or (new and first < begin):
                raise ValueError(
                    f"cannot roll {self.lengths} back to {list(lengths)}, kept from {self.begins}"
                )
        self.lengths = list(lengths)
        self.begins = [begin if new else 0 for new, begin in zip(lengths, self.begins, strict=True)]

    def held(self, count: int) -> tuple[Array, Array]:
        """Keys and values [1, heads, S, dim] of a single row's newest positions, at most `count` of them.

        Raises ValueError for more than are kept.
        """
        last = self.slots[0]
        first = max(self.lengths[0] - count, 0) - self.begins[0]
        if first < 0:
            raise ValueError(f"{count} positions are not kept, only {last} are")
        return self.keys[:1, :, first:last], self.values[:1, :, first:last]

    @property
    def slots(self) -> list[int]:
        """The slot each row's next position goes to."""
        return [length - begin for length, begin in zip(self.lengths, self.begins, strict=True)]

    @property
    def fixed(self) -> tuple[int, int] | None:
        """Block and width of the window, where it is fixed."""
        return self._fixed

    def _append(self, other: Any) -> None:
        super()._append(other)
        self.begins = [*self.begins, *other.begins]

    def _drop(self, row: int) -> None:
        super()._drop(row)
        self.begins = without(self.begins, row)

    def _like_row(self, row: int) -> WindowCache:
        copy = WindowCache(1, self.window)
        copy.lengths, copy.begins, copy._fixed = [self.lengths[row]], [self.begins[row]], self._fixed
        return copy

    @property
    def _fixed_width(self) -> int:
        return self._fixed[1] if self._fixed else 0

    def _reach(self, lengths: Sequence[int]) -> list[int]:
        """The first position that the next one of each row may see."""
        return [max(0, length - self.window + 1) for length in lengths]

    def _seen(self, count: int) -> tuple[int, int]:
        """The slots [first, last) that a forward of `count` positions attends over."""
        if self._fixed and count == self._fixed[1]:
            block, width = self._fixed
            number = self.lengths[0] // block
            first = max(0, number * block - self.window + 1) - self.begins[0]
            if first < 0:
                raise ValueError(f"block {number} begins behind what is kept, from {self.begins[0]}")
            return first, (number + 1) * block + width - self.begins[0]
        first = min(near - begin for near, begin in zip(self._reach(self.lengths), self.begins, strict=True))
        return first, max(self.slots) + count

    def _drop_before(self, positions: Sequence[int]) -> None:
        """Moves each row to begin at its position, where one has a whole step to drop by that."""
        drops = [max(0, new - begin) for new, begin in zip(positions, self.begins, strict=True)]
        if max(drops) < STEP:
            return
        self.begins = [begin + drop for begin, drop in zip(self.begins, drops, strict=True)]
        room = whole_steps(max([*self.slots, *self._coming_slots]) + 1)
        self.keys, self.values = _moved(self.keys, drops, room), _moved(self.values, drops, room)


def _moved(held: Array, drops: Sequence[int], room: int) -> Array:
    """Each row without its first `drops[b]` slots, with `room` slots in all."""
    if held.shape[0] == 1:
        kept = held[..., drops[0] : drops[0] + room, :]
        missing = room - kept.shape[2]
        return extended(kept, held, missing) if missing else mx.contiguous(kept)
    spare = held.shape[0] - len(drops)
    places = mx.minimum(mx.array([*drops, *[0] * spare])[:, None] + mx.arange(room), held.shape[2] - 1)
    return mx.take_along_axis(held, places[:, None, :, None], axis=2)
