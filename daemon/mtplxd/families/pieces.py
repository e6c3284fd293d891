"""Cuts what a row's caches remember into pieces by position.

Pieces are copies that no cache shares: a row that goes on from them leaves them as they are. How they come into
another row's caches is `filling`'s; which positions make a piece, and where pieces are kept, is decided outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mtplxd.families.caches import PairCache, RowCache, StateCache, WindowCache
from mtplxd.families.heads.carrying import FirstCache
from mtplxd.families.heads.gemma4_reading import BorrowedCache
from mtplxd.families.host import HostArray
from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import Array, mx

BEHIND = 128
"""Positions behind a window that a row may go back to: more than a round makes, or a block of forwards of one shape."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one layer remembers of the positions [first, last) of a row.

    `slots` are their keys and values, [1, heads, n, dim] each, where the layer keeps them by position; `state` is what
    stands for all positions before `last` where it does not; `parts` are those of the caches that it is made of. A row
    can go on behind a piece that is `whole`: one of a layer with a state must be cut where the row stands. Of a piece
    with a `gap` a window had dropped some positions: `slots` are the last ones. Slots that came from elsewhere are not
    yet arrays.
    """

    first: int
    last: int
    whole: bool = True
    slots: tuple[Array | HostArray, ...] = ()
    state: tuple[Array | None, ...] = ()
    parts: tuple[Piece, ...] = ()
    gap: bool = False

    @property
    def arrays(self) -> list[Array | HostArray]:
        """All of its arrays."""
        own = [*self.slots, *(array for array in self.state if array is not None)]
        return own + [array for part in self.parts for array in part.arrays]

    @property
    def begin(self) -> int:
        """The first position it has slots of; `last` where it has none."""
        return self.last - (self.slots[0].shape[2] if self.slots else 0)


def can_cut(layer: LayerCache) -> bool:
    """Whether it is known how such a layer is cut."""
    if isinstance(layer, PairCache):
        return all(can_cut(part) for part in layer.caches)
    if isinstance(layer, FirstCache):
        return can_cut(layer.inner)
    return type(layer) in _CUTTERS


def keeps_pairs(layer: LayerCache) -> bool:
    """Whether a head's layer keeps anything of its pairs, or only counts them."""
    return not isinstance(layer, BorrowedCache)


def has_state(layer: LayerCache) -> bool:
    """Whether a layer has a state, which is as large at every position."""
    if isinstance(layer, PairCache):
        return any(has_state(part) for part in layer.caches)
    return isinstance(layer, StateCache)


def ends_only(layer: LayerCache) -> bool:
    """Whether a row can go on behind pieces of a layer only where they were cut with the row standing there."""
    return has_state(layer) or isinstance(layer, FirstCache)


def state_bytes(layer: LayerCache) -> int:
    """Bytes of a layer's state, 0 where it has none."""
    if isinstance(layer, PairCache):
        return sum(state_bytes(part) for part in layer.caches)
    return sum(array.nbytes for array in layer.state) if isinstance(layer, StateCache) else 0


def reach(layer: LayerCache) -> int:
    """How many positions behind the end a row needs the slots of in pieces of a layer with a window; 0 without one."""
    if isinstance(layer, PairCache):
        return max(reach(part) for part in layer.caches)
    if isinstance(layer, FirstCache):
        return reach(layer.inner)
    return layer.window - 1 + BEHIND if isinstance(layer, WindowCache) else 0


def cut(layer: LayerCache, first: int, last: int, *, with_state: bool = True, row: int = 0) -> Piece:
    """The positions [first, last) of a row's layer, and its state there if that is wanted and the layer can tell it.
    Not evaluated: who writes to the layer next would copy all of it. Raises ValueError for positions that it does not
    hold.
    """
    return _CUTTERS[type(layer)](layer, first, last, with_state, row)


def _cut_slots(layer: Any, first: int, last: int, _with_state: bool, row: int) -> Piece:
    if not 0 <= first <= last <= layer.lengths[row]:
        raise ValueError(f"positions {first} to {last} are not kept, only up to {layer.lengths[row]}")
    begin = layer.begins[row] if isinstance(layer, WindowCache) else 0
    held = max(first, begin)
    if held >= last:
        return Piece(first, last, gap=first < last)
    span = slice(held - begin, last - begin)
    slots = tuple(mx.contiguous(array[row : row + 1, :, span]) for array in layer.state)
    return Piece(first, last, slots=slots, gap=held > first)


def _cut_state(layer: Any, first: int, last: int, with_state: bool, row: int) -> Piece:
    found = layer.at(row, last) if with_state else None
    if found is None:
        return Piece(first, last, whole=False)
    return Piece(first, last, state=tuple(_kept(array) for array in found))


def _cut_pair(layer: Any, first: int, last: int, with_state: bool, row: int) -> Piece:
    parts = tuple(cut(part, first, last, with_state=with_state, row=row) for part in layer.caches)
    whole, gap = all(part.whole for part in parts), any(part.gap for part in parts)
    return Piece(first, last, whole=whole, parts=parts, gap=gap)


def _cut_first(layer: Any, first: int, last: int, with_state: bool, row: int) -> Piece:
    inner = cut(layer.inner, first, last, with_state=with_state, row=row)
    carried = layer.carries[row].get(last, []) if layer.lengths[row] == last else []
    whole = inner.whole and (bool(carried) or last == 0)
    state = tuple(_kept(array) for array in carried)
    return Piece(first, last, whole=whole, state=state, parts=(inner,), gap=inner.gap)


def _cut_nothing(_layer: Any, first: int, last: int, _with_state: bool, _row: int) -> Piece:
    return Piece(first, last)


def _kept(array: Array | None) -> Array | None:
    """The array without the rest of what it may be a part of, and none that anybody else may write to."""
    return None if array is None else mx.contiguous(array)


_CUTTERS: dict[type, Callable[[Any, int, int, bool, int], Piece]] = {
    RowCache: _cut_slots,
    WindowCache: _cut_slots,
    StateCache: _cut_state,
    PairCache: _cut_pair,
    FirstCache: _cut_first,
    BorrowedCache: _cut_nothing,
}
