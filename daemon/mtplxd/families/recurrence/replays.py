"""What a forward of a recurrent layer leaves behind: a trace of its recurrence, or the layer's input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mtplxd.families.caches.state import Slots
from mtplxd.families.recurrence.update import Trace
from mtplxd.platform.mlx import Array, mx


@dataclass(slots=True)
class Tape:
    """What a layer's short convolutions saw, in the order of their slots, and the trace of its recurrence, if any.

    A convolution's input is [B, kept + L, channels]: what it kept from before, then the forward's positions.
    """

    count: int
    in_steps: bool
    convolved: list[Array] = field(default_factory=list)
    trace: Trace | None = None

    def is_whole(self, slots: int) -> bool:
        """Whether it tells all of so many slots."""
        return len(self.convolved) + (self.trace is not None) == slots

    def after(self, before: Slots, count: int) -> Slots:
        """The convolutions' slots by slicing, the recurrence's by running it again over `count` positions."""
        slots: Slots = [self._tail(seen, count) for seen in self.convolved]
        return slots if self.trace is None else [*slots, self.trace.state_after(before[-1], count)]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(int(seen.nbytes) for seen in self.convolved) + (self.trace.nbytes if self.trace else 0)

    def _tail(self, seen: Array, count: int) -> Array:
        return mx.contiguous(seen[:, count : count + seen.shape[1] - self.count])


@dataclass(frozen=True, slots=True)
class Rerun:
    """A layer's input [B, L, H]; `layer` runs positions from given slots and gives the slots after them.

    Costs the layer's projections as well, but holds far less than a tape does: for long forwards, and for layers whose
    recurrence is not a function of its own.
    """

    layer: Callable[[Array, Slots], Slots]
    inputs: Array

    def after(self, before: Slots, count: int) -> Slots:
        """The slots of a forward of the first `count` positions."""
        return self.layer(self.inputs[:, :count], before)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.inputs.nbytes)
