"""The state of a layer that keeps no position apart: a recurrence, a short convolution. Goes back by replaying.

Stands in for mlx-lm's ArraysCache. What a replay computes is its layer's business (see families/recurrence); this only
knows which forward can be taken back, and by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mtplxd.families.caches.slots import without
from mtplxd.platform.mlx import Array, mx

Slots = list[Any]
"""What a layer keeps, arrays with the rows first, or None before the first write."""


class Replay(Protocol):
    """What a forward of several positions left behind, enough to tell the state in the middle of it."""

    def after(self, before: Slots, count: int) -> Slots:
        """The state once only the forward's first `count` positions have followed `before`; evaluates nothing."""

    @property
    def nbytes(self) -> int:
        """Bytes it holds."""


@dataclass(slots=True)
class _Forward:
    """A forward that can be taken back: where it began, the states around it. One position needs no replay."""

    begin: list[int]
    count: int
    before: Slots
    after: Slots
    replay: Replay | None

    def slots(self, kept: Sequence[int]) -> Slots:
        """The state once the first `kept[b]` positions of row b are kept; rows that differ are replayed in turn."""
        first, *others = sorted(set(kept))
        chosen = self.slots_at(first)
        for count in others:
            here = mx.array([of_row == count for of_row in kept])
            chosen = [_choose(here, *pair) for pair in zip(self.slots_at(count), chosen, strict=True)]
        return chosen

    def slots_at(self, count: int) -> Slots:
        """The state of all rows once the first `count` positions are kept."""
        if count == 0:
            return self.before
        if count == self.count or self.replay is None:
            return self.after
        return self.replay.after(self.before, count)


class StateCache:
    """One layer's state. Rolls back within the last forward, or to its begin; arrays are replaced, never written into.

    After a forward of a single position the one before it can go too, if it was one of a single position as well: a
    round at depth 0 may have its successor in flight.
    """

    def __init__(self, rows: int = 1, size: int = 2) -> None:
        self.slots: Slots = [None] * size
        self.lengths = [0] * rows
        self.width: int | None = None
        self._forwards: list[_Forward] = []

    def __getitem__(self, index: int) -> Any:
        return self.slots[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self.slots[index] = value

    @property
    def offset(self) -> int | Array:
        """Where the next position goes: an integer for one row, int32 [B] for several."""
        return self.lengths[0] if len(self.lengths) == 1 else mx.array(self.lengths, mx.int32)

    def make_mask(self, count: int, **_: Any) -> None:
        """Which of `count` new positions are real: all of them. Padding is rolled back, not masked."""

    def fix_window(self, block: int, width: int) -> None:  # noqa: ARG002 - states have no blocks
        """From now on a forward of `width` positions gives each the numbers it has anywhere in such a forward."""
        self.width = width

    def advance(self, count: int, slots: Slots, replay: Replay | None) -> None:
        """Takes the state after `count` more positions; `replay` tells it in the middle of them."""
        latest = self._forwards[-1:]
        kept = [f for f in latest if f.count == count == 1 and [b + 1 for b in f.begin] == self.lengths]
        self._forwards = [*kept, _Forward(self.lengths, count, self.slots, slots, replay)]
        self.slots = slots
        self.lengths = [length + count for length in self.lengths]

    def roll_back(self, lengths: Sequence[int]) -> None:
        """Takes positions back: those of the last forward, or all. Raises ValueError for growth and for any others."""
        wanted = list(lengths)
        if any(new > old or new < 0 for new, old in zip(wanted, self.lengths, strict=True)):
            raise ValueError(f"cannot roll {self.lengths} back to {wanted}")
        if wanted == self.lengths:
            return
        if not any(wanted):
            self.slots, self.lengths, self._forwards = [None] * len(self.slots), wanted, []
            return
        for place, forward in reversed(list(enumerate(self._forwards))):
            kept = [new - begin for new, begin in zip(wanted, forward.begin, strict=True)]
            if min(kept) >= 0 and max(kept) <= forward.count:
                self.slots, self.lengths = forward.slots(kept), wanted
                self._forwards = self._forwards[: place + any(kept)]
                return
        raise ValueError(f"cannot roll a state at {self.lengths} back to {wanted}: nothing tells it")

    def at(self, row: int, length: int) -> Slots | None:
        """A row's state behind its first `length` positions; None where nothing tells it. Evaluates nothing.

        Told are the newest position's, and those within the forwards that can be taken back.
        """
        if length > self.lengths[row]:
            return None
        if self.lengths[row] == length:
            return [_taken(array, [row]) for array in self.slots]
        for forward in reversed(self._forwards):
            kept = length - forward.begin[row]
            if 0 <= kept <= forward.count and (forward.replay or kept in (0, forward.count)):
                return [_taken(array, [row]) for array in forward.slots_at(kept)]
        return None

    def make_ready(self, other: StateCache) -> None:
        """Copies nothing: a state is small, and joins at once."""

    def is_ready(self, other: StateCache) -> bool:  # noqa: ARG002 - whoever it is
        """Nothing can be copied ahead."""
        return True

    def forget_coming(self) -> None:
        """Nobody was made ready."""

    def join(self, other: StateCache) -> None:
        """Appends another's rows. None of them goes back to where it was before."""
        counts = len(self.lengths), len(other.lengths)
        self.slots = [_stacked(pair, counts) for pair in zip(self.slots, other.slots, strict=True)]
        self.lengths, self._forwards = [*self.lengths, *other.lengths], []
        mx.eval(self.state)

    def leave(self, row: int) -> None:
        """Takes a row out; the last one takes its place. None of the others goes back to where it was before."""
        order = without(range(len(self.lengths)), row)
        self.lengths, self._forwards = [self.lengths[place] for place in order], []
        self.slots = [_taken(array, order) for array in self.slots]
        mx.eval(self.state)

    def copy_row(self, row: int) -> StateCache:
        """A cache of that one row as it is now."""
        copy = StateCache(1, len(self.slots))
        copy.lengths, copy.width = [self.lengths[row]], self.width
        copy.slots = [_taken(array, [row]) for array in self.slots]
        mx.eval(copy.state)
        return copy

    def read_from(self, body_cache: Sequence[Any]) -> None:
        """Reads nothing of the body's."""

    @property
    def replay(self) -> Replay | None:
        """What tells the middle of the last forward; None where it had none, or went back whole."""
        return self._forwards[-1].replay if self._forwards else None

    @property
    def state(self) -> list[Array]:
        """The arrays to evaluate, empty before the first write."""
        return [array for array in self.slots if array is not None]

    @property
    def nbytes(self) -> int:
        """Bytes held, those of the forwards that can be taken back included."""
        around = [array for forward in self._forwards for array in (*forward.before, *forward.after)]
        held = {id(array): int(array.nbytes) for array in (*self.state, *around) if array is not None}
        return sum(held.values()) + sum(f.replay.nbytes for f in self._forwards if f.replay)


def _stacked(pair: tuple[Array | None, Array | None], counts: tuple[int, int]) -> Array | None:
    """One slot of two caches, rows behind rows. Nothing written is as good as zeros."""
    held = next((array for array in pair if array is not None), None)
    if held is None:
        return None
    rows = [
        mx.zeros((count, *held.shape[1:]), held.dtype) if array is None else array
        for array, count in zip(pair, counts, strict=True)
    ]
    return mx.concatenate(rows)


def _taken(array: Array | None, order: Sequence[int]) -> Array | None:
    """These rows of a slot; no array of no rows."""
    return None if array is None or not order else array[mx.array(order)]


def _choose(here: Array, new: Array, old: Array | None) -> Array:
    shape = [-1, *[1] * (new.ndim - 1)]
    return mx.where(here.reshape(shape), new, mx.zeros_like(new) if old is None else old)
