"""A recurrence as mlx-lm's layers call it: one function of a stretch of positions and the state before it.

Runs it again over the first positions of a stretch. Knows no layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mtplxd.platform.mlx import Array, mx


class Trace(Protocol):
    """What a stretch left of its recurrence, enough to tell the state in the middle of it."""

    def state_after(self, before: Array | None, count: int) -> Array | None:
        """The state once only the first `count` positions have followed `before`."""

    @property
    def nbytes(self) -> int:
        """Bytes it holds."""


Traced = tuple[Array, Array | None, Trace]
"""Outputs and state of a stretch, and what it left."""


@dataclass(frozen=True, slots=True)
class Update:
    """A function `name(...) -> (outputs, state)` of mlx-lm.

    `along` maps each argument that has a value a position to the axis of its positions; outputs share the first one's.
    `state` is the argument that takes the state. `sequential` says that the function goes position by position, so
    that cutting a stretch in two changes no bit. `trace` computes a call itself where that leaves something cheaper to
    replay than the call, and None elsewhere.
    """

    name: str
    along: Mapping[str, int]
    state: str
    sequential: bool
    trace: Callable[[Call], Traced | None] | None = None

    @property
    def axis(self) -> int:
        """The axis of the outputs' positions."""
        return next(iter(self.along.values()))


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an update: the function and its arguments by name, in mlx-lm's shapes.

    `in_steps` asks for numbers that do not depend on where the stretch is cut.
    """

    update: Update
    function: Callable[..., tuple[Array, Array]]
    arguments: dict[str, Any]
    in_steps: bool

    @property
    def count(self) -> int:
        """Positions it covers."""
        return int(self.arguments[next(iter(self.update.along))].shape[self.update.axis])

    @property
    def nbytes(self) -> int:
        """Bytes of the arguments that have a value a position."""
        return sum(int(self.arguments[name].nbytes) for name in self.update.along)

    def run(self) -> Traced:
        """Computes the whole stretch."""
        traced = self.update.trace(self) if self.update.trace else None
        if traced:
            return traced
        if self._stepwise:
            return (*self._run_in_steps(), self)
        return (*self.function(**self.arguments), self)

    @property
    def _stepwise(self) -> bool:
        return self.in_steps and not self.update.sequential

    def _run_in_steps(self) -> tuple[Array, Array | None]:
        outputs, state = [], self.arguments.get(self.update.state)
        for place in range(self.count):
            output, state = self._run(state, place, place + 1)
            outputs.append(output)
        return mx.concatenate(outputs, axis=self.update.axis), state

    def state_after(self, before: Array | None, count: int) -> Array | None:
        """The state once only the first `count` positions have followed `before`."""
        if not self._stepwise:
            return self._run(before, 0, count)[1]
        state = before
        for place in range(count):
            state = self._run(state, place, place + 1)[1]
        return state

    def _run(self, state: Array | None, begin: int, end: int) -> tuple[Array, Array]:
        cut = {
            name: self.arguments[name][(slice(None),) * axis + (slice(begin, end),)]
            for name, axis in self.update.along.items()
        }
        return self.function(**(self.arguments | cut | {self.update.state: state}))
