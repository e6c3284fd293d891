"""Slots of keys and values that grow in steps and are written in place; which position lies in which is not known here.

The ground that `RowCache` and `WindowCache` stand on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplxd.platform.mlx import Array, mx

STEP = 256
"""Capacity grows by so many slots at a time."""


class SlotCache:
    """One layer's keys and values, [B, heads, capacity, dim] or None before the first write; `lengths` positions a row.

    One row alone takes the scalar path (slices, integer offsets); several write in place at their own slots.
    """

    def __init__(self, rows: int) -> None:
        self.keys: Any = None
        self.values: Any = None
        self.lengths = [0] * rows

    @property
    def offset(self) -> int | Array:
        """Where the next position goes: an integer for one row, int32 [B] for several."""
        return self.lengths[0] if len(self.lengths) == 1 else mx.array(self.lengths, mx.int32)

    @property
    def state(self) -> list[Array]:
        """The arrays to evaluate, empty before the first write."""
        return [] if self.keys is None else [self.keys, self.values]

    @property
    def nbytes(self) -> int:
        """Bytes held, capacity included."""
        return sum(array.nbytes for array in self.state)

    def write(self, keys: Array, values: Array, slots: Sequence[int], end: int) -> None:
        """Puts [B, heads, L, dim] into each row's slots from `slots[b]` on, with room for `end` in all."""
        held = 0 if self.keys is None else self.keys.shape[2]
        if end > held:
            extra = -(-(end - held) // STEP) * STEP
            self.keys, self.values = extended(self.keys, keys, extra), extended(self.values, values, extra)
        self.keys, self.values = _written(self.keys, keys, slots), _written(self.values, values, slots)


def extended(held: Array | None, like: Array, extra: int) -> Array:
    """Slots [B, heads, S, dim] with `extra` empty ones behind them, shaped as `like`."""
    rows, heads, _, dim = like.shape
    space = mx.zeros((rows, heads, extra, dim), like.dtype)
    return space if held is None else mx.concatenate([held, space], axis=2)


def _written(held: Any, new: Array, slots: Sequence[int]) -> Any:
    count = new.shape[2]
    if len(slots) == 1:
        held[..., slots[0] : slots[0] + count, :] = new
        return held
    places = mx.array(slots, mx.int32)[:, None] + mx.arange(count, dtype=mx.int32)
    return mx.put_along_axis(held, mx.broadcast_to(places[:, None, :, None], new.shape), new, axis=2)
