"""Slots of keys and values that grow in steps and are written in place; which position lies in one is not known here.

The ground that `RowCache` and `WindowCache` stand on. Rows come and go between rounds: there is room for a few more,
so that one that joins or leaves is copied alone, and one that will join may be copied ahead, behind the rows that
count. Room that most rows have no use for is given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from mtplxd.platform.mlx import Array, mx

T = TypeVar("T")

STEP = 256
"""Capacity grows by so many slots at a time."""


class SlotCache:
    """One layer's keys and values, [R, heads, capacity, dim] or None before the first write, of which the first B rows
    count; `lengths` positions a row.

    One row alone takes the scalar path (slices, integer offsets); several write in place at their own slots. What lies
    in a row's slots behind its last is never another row's: a product with it is a number wherever the row's own are.
    """

    def __init__(self, rows: int) -> None:
        self.keys: Any = None
        self.values: Any = None
        self.lengths = [0] * rows
        self._coming: SlotCache | None = None

    @property
    def offset(self) -> int | Array:
        """Where the next position goes: an integer for one row, int32 [B] for several."""
        return self.lengths[0] if len(self.lengths) == 1 else mx.array(self.lengths, mx.int32)

    @property
    def slots(self) -> list[int]:
        """The slot each row's next position goes to."""
        return self.lengths

    @property
    def fixed(self) -> tuple[int, int] | None:
        """Block and width of the window, where it is fixed."""
        raise NotImplementedError

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
        held, coming = 0 if self.keys is None else self.keys.shape[2], self._coming_slots
        end = max([end, *(slot + keys.shape[2] for slot in coming)])
        if end > held:
            extra = whole_steps(end - held)
            self.keys, self.values = extended(self.keys, keys, extra), extended(self.values, values, extra)
        if len(slots) == 1:
            begin, last = slots[0], slots[0] + keys.shape[2]
            self.keys[:1, :, begin:last] = keys
            self.values[:1, :, begin:last] = values
            return
        spare = [*coming, *[0] * (self.keys.shape[0] - len(slots) - len(coming))]
        places = mx.array([[slot + i for i in range(keys.shape[2])] for slot in [*slots, *spare]], mx.int32)
        self.keys, self.values = _put(self.keys, keys, places), _put(self.values, values, places)

    def seen(self, first: int, last: int) -> tuple[Array, Array]:
        """Keys and values [B, heads, last − first, dim] of all rows' slots."""
        rows = len(self.lengths)
        if rows == self.keys.shape[0]:
            return self.keys[..., first:last, :], self.values[..., first:last, :]
        return self.keys[:rows, :, first:last], self.values[:rows, :, first:last]

    def make_ready(self, other: SlotCache) -> None:
        """Copies the row that another cache of the layer holds to where `join` will find it, and keeps it there while
        the rows here go on. Whoever joins or leaves meanwhile undoes it. Raises ValueError for fixed windows."""
        if not self.is_ready(other):
            self._copy_in(other)
            self._coming = other
            mx.eval(self.state)

    def is_ready(self, other: SlotCache) -> bool:
        """Whether nothing of that cache's row is left to copy."""
        return self._coming is other or not self.lengths or (self.keys is None and other.keys is None)

    def forget_coming(self) -> None:
        """Whoever was made ready does not come; the room for it is given back."""
        if self._coming is not None:
            self._coming = None
            rows, slots = len(self.lengths), whole_steps(max(max(self.slots), 1))
            self.keys, self.values = (mx.contiguous(array[:rows, :, :slots]) for array in self.state)
            mx.eval(self.state)

    def join(self, other: SlotCache) -> None:
        """Appends the rows of another cache of the layer, which is used up. Raises ValueError for fixed windows."""
        if self._coming is not other:
            self._copy_in(other)
        self._coming = other.keys = other.values = None
        self._append(other)
        mx.eval(self.state)

    def _copy_in(self, other: SlotCache) -> None:
        """Puts another's rows behind those here."""
        if self.fixed or other.fixed:
            raise ValueError("rows of a fixed window share no forward with others")
        mine, joining, end = len(self.lengths), len(other.lengths), max(other.slots, default=0)
        self._coming = None
        if not mine:
            self.keys, self.values = other.keys, other.values
        elif end or self.keys is not None:
            self.keys = _joined(self.keys, other.keys, mine, joining, end)
            self.values = _joined(self.values, other.values, mine, joining, end)

    @property
    def _coming_slots(self) -> list[int]:
        """The slot behind the row that was copied ahead, if there is one; what lies from there on does not matter."""
        return [] if self._coming is None else [self._coming.slots[0]]

    def leave(self, row: int) -> None:
        """Takes a row out; the last one takes its place."""
        last, self._coming = len(self.lengths) - 1, None
        self._drop(row)
        if not self.lengths:
            self.keys = self.values = None
        if self.keys is None:
            return
        rows, slots = self.keys.shape[0], self.keys.shape[2]
        wanted = whole_steps(max(max(self.slots), 1))
        if 2 * last <= rows or slots - wanted >= max(STEP, slots // 4):
            order = list(range(last))
            if row < last:
                order[row] = last
            self.keys, self.values = (array[:, :, :wanted][mx.array(order)] for array in self.state)
        elif row < last:
            moved = [mx.contiguous(array[last : last + 1]) for array in self.state]
            mx.eval(moved)  # what still reads an array would have the whole of it copied when it is written
            self.keys[row : row + 1], self.values[row : row + 1] = moved
        mx.eval(self.state)

    def copy_row(self, row: int) -> Self:
        """A cache of that one row with the capacity of its length, which keeps no other row alive."""
        copy = self._like_row(row)
        if count := copy.slots[0]:
            end = whole_steps(count)
            copy.keys, copy.values = (mx.contiguous(array[row : row + 1, :, :end]) for array in self.state)
            mx.eval(copy.state)
        return copy

    def read_from(self, body_cache: Sequence[Any]) -> None:
        """Reads nothing of the body's."""

    def _append(self, other: Any) -> None:
        """Takes in what is known of another's rows, but for their arrays."""
        self.lengths = [*self.lengths, *other.lengths]

    def _drop(self, row: int) -> None:
        """Forgets what is known of a row, but for its arrays."""
        self.lengths = without(self.lengths, row)

    def _like_row(self, row: int) -> Self:
        """An empty cache with what is known of that row, but for its arrays."""
        raise NotImplementedError


def whole_steps(slots: int) -> int:
    """So many slots, up to a whole step."""
    return -(-slots // STEP) * STEP


def without(values: Sequence[T], row: int) -> list[T]:
    """A value a row without that row's; the last one takes its place. How rows leave, wherever they are listed."""
    kept = list(values)
    kept[row] = kept[-1]
    return kept[:-1]


def extended(held: Array | None, like: Array, extra: int) -> Array:
    """Slots [R, heads, S, dim] with `extra` empty ones behind them, shaped as `like`."""
    rows, heads, _, dim = (like if held is None else held).shape
    space = mx.zeros((rows, heads, extra, dim), like.dtype)
    return space if held is None else mx.concatenate([held, space], axis=2)


def _joined(held: Any, new: Any, mine: int, joining: int, end: int) -> Any:
    """Slots with `joining` rows of another array behind the first `mine`, and nothing but zeros behind their `end`."""
    like = new if held is None else held
    room, slots = (mine, 0) if held is None else (held.shape[0], held.shape[2])
    wanted = max(slots, whole_steps(end))
    if held is None or mine + joining > room or wanted > slots:
        while room < mine + joining:
            room += max(1, room // 2)
        grown = mx.zeros((room, like.shape[1], wanted, like.shape[3]), like.dtype)
        if held is not None:
            grown[:mine, :, :slots] = held[:mine]
        held = grown
    if end < wanted:
        held[mine : mine + joining, :, end:] = mx.array(0, held.dtype)
    if end:
        held[mine : mine + joining, :, :end] = new[:joining, :, :end]
    return held


def _put(held: Any, new: Array, places: Array) -> Any:
    """Writes [B, heads, L, dim] into the slots `places` [R, L], in place; rows that none has are given zeros."""
    if spare := len(places) - new.shape[0]:
        new = mx.pad(new, [(0, spare), (0, 0), (0, 0), (0, 0)])
    return mx.put_along_axis(held, mx.broadcast_to(places[:, None, :, None], new.shape), new, axis=2)
