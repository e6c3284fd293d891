"""Fills the empty caches of a row with pieces of what another row's remembered, some pieces at a time.

What a layer needs no more of a piece is let go of as soon as it is in place. How pieces are cut is `pieces`'; which
ones follow each other, and when they are put in place, is decided outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mtplxd.families.caches import PairCache, RowCache, StateCache, WindowCache
from mtplxd.families.caches.slots import whole_steps
from mtplxd.families.caches.window import SLACK
from mtplxd.families.heads.carrying import FirstCache
from mtplxd.families.heads.gemma4_reading import BorrowedCache
from mtplxd.families.host import HostArray, Room, on_device
from mtplxd.families.pieces import Piece, reach
from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import Array, mx


class Filler(Protocol):
    """One layer of a single row on its way to stand behind pieces that follow each other from position 0 on."""

    def add(self, piece: Piece) -> None:
        """Takes the next piece."""

    def settle(self) -> None:
        """Puts in place what can be, and lets go of its pieces, whose arrays are evaluated."""

    def finish(self) -> None:
        """Lets the layer stand behind the last piece. Raises ValueError where that one is not whole, or slots are
        missing."""


def filler(layer: LayerCache, last: int) -> Filler:
    """What fills an empty layer that will stand at `last`. No array of a piece becomes the layer's."""
    made: Filler = _FILLERS[type(layer)](layer, last)
    return made


def fill(layer: LayerCache, pieces: Sequence[Piece]) -> None:
    """All at once: lets the empty layer stand behind these pieces."""
    filling = filler(layer, pieces[-1].last)
    for piece in pieces:
        filling.add(piece)
    filling.finish()


class _Ending:
    """What is told by the last piece alone."""

    def __init__(self, layer: Any, last: int) -> None:
        self._layer, self._at_last = layer, last
        self._piece: Piece | None = None

    def add(self, piece: Piece) -> None:
        self._piece = piece

    def settle(self) -> None:
        pass

    def _end(self) -> Piece:
        piece = self._piece
        if piece is None or piece.last != self._at_last or not piece.whole:
            raise ValueError(f"nothing tells the state of a row at {self._at_last}")
        return piece


class _Counted(_Ending):
    def finish(self) -> None:
        self._layer.lengths = [self._end().last]


class _State(_Ending):
    def finish(self) -> None:
        piece = self._end()
        self._layer.slots = [None if array is None else mx.contiguous(array) for array in piece.state]
        self._layer.lengths = [piece.last]


class _First(_Ending):
    def __init__(self, layer: Any, last: int) -> None:
        super().__init__(layer, last)
        self._inner = filler(layer.inner, last)

    def add(self, piece: Piece) -> None:
        super().add(piece)
        self._inner.add(piece.parts[0])

    def settle(self) -> None:
        self._inner.settle()

    def finish(self) -> None:
        piece = self._end()
        self._inner.finish()
        carried = [mx.contiguous(array) for array in piece.state if array is not None]
        self._layer.carries = [{piece.last: carried}] if carried else [{}]


class _Pair(_Ending):
    def __init__(self, layer: Any, last: int) -> None:
        super().__init__(layer, last)
        self._parts = [filler(part, last) for part in layer.caches]

    def add(self, piece: Piece) -> None:
        super().add(piece)
        for part, own in zip(self._parts, piece.parts, strict=True):
            part.add(own)

    def settle(self) -> None:
        for part in self._parts:
            part.settle()

    def finish(self) -> None:
        self._end()
        for part in self._parts:
            part.finish()


class _Slots(_Ending):
    """Slots of all positions: each written once where it belongs, into room that becomes the layer's in the end."""

    def __init__(self, layer: Any, last: int) -> None:
        super().__init__(layer, last)
        self._waiting: list[tuple[Array | HostArray, ...]] = []
        self._room: list[Room] = []
        self._placed = 0

    def add(self, piece: Piece) -> None:
        super().add(piece)
        if piece.slots:
            self._waiting.append(piece.slots)

    def settle(self) -> None:
        if self._waiting and not self._room:
            slots = whole_steps(self._at_last + 1)
            self._room = [
                Room((*like.shape[:2], slots, like.shape[3]), like.dtype) for like in self._waiting[0]
            ]
        for slots_of in self._waiting:
            begin = self._placed
            self._placed += slots_of[0].shape[2]
            if self._placed > self._at_last:
                raise ValueError(f"{self._placed} slots of {self._at_last} positions")
            for room, part in zip(self._room, slots_of, strict=True):
                room.put(part, begin)
        self._waiting = []

    def finish(self) -> None:
        self._end()
        self.settle()
        if self._placed not in (0, self._at_last):
            raise ValueError(f"{self._placed} slots of {self._at_last} positions")
        if self._room:
            self._layer.keys, self._layer.values = (room.array() for room in self._room)
            self._room = []
        self._layer.lengths = [self._at_last]


class _Window(_Ending):
    """The newest slots: what the window will have left behind is not kept."""

    def __init__(self, layer: Any, last: int) -> None:
        super().__init__(layer, last)
        self._needed = max(0, last - layer.window + 1 - SLACK)
        self._pieces: list[Piece] = []

    def add(self, piece: Piece) -> None:
        super().add(piece)
        if piece.gap or (self._pieces and self._pieces[-1].last <= self._needed):
            self._pieces.clear()
        self._pieces.append(piece)

    def finish(self) -> None:
        self._end()
        last, layer, begin = self._at_last, self._layer, self._pieces[0].begin
        if begin > max(0, last - reach(layer)):
            raise ValueError(f"a window that ends at {last} has no slots before {begin}")
        layer.begins, layer.lengths = [begin], [last]
        held = [piece.slots for piece in self._pieces if piece.slots]
        if held:
            layer.keys, layer.values = _with_room(held, whole_steps(last - begin + 1))


def _with_room(held: Sequence[tuple[Array | HostArray, ...]], slots: int) -> list[Array]:
    """Keys and values, [1, heads, slots, dim] each, that begin with these and are never the same array."""
    made = []
    for parts in zip(*held, strict=True):
        first = parts[0]
        empty = slots - sum(part.shape[2] for part in parts)
        space = mx.zeros((1, first.shape[1], empty, first.shape[3]), first.dtype)
        made.append(mx.concatenate([*map(on_device, parts), space], axis=2))
    return made


_FILLERS: dict[type, Callable[[Any, int], Any]] = {
    RowCache: _Slots,
    WindowCache: _Window,
    StateCache: _State,
    PairCache: _Pair,
    FirstCache: _First,
    BorrowedCache: _Counted,
}
