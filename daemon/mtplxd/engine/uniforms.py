"""The one source of randomness: counter-based numbers, functions of (seed, round) or (seed, position) and nothing else.

A round asks for uniforms with the law each will be applied to. The real source ignores the law; a proof may put a
source in its place that walks through every outcome of it. Nothing here depends on a row's depth or its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mtplxd.platform.mlx import Array, mx

if TYPE_CHECKING:
    from mtplxd.engine.sampling import Law

_ROUND_STREAM, _POSITION_STREAM = 0, 1
_RACES_KEPT = 32
_UNIFORMS_AT_ONCE = 17
"""What eight drafts need."""


class UniformSource(Protocol):
    """Randomness of one round of B rows: uniforms in [0, 1), and the times of races."""

    def draft(self, step: int, law: Law) -> Array:
        """For drawing draft `step` from B laws; gives [B]."""

    def accept(self, chances: Array) -> Array:
        """For judging k drafts that pass with chances [B, k]; gives [B, k]."""

    def final(self, law: Law) -> Array:
        """For drawing the round's last token from B laws; gives [B]."""

    def races(self, begin: int, count: int, size: int) -> Array:
        """Exponential times [B, count, size] of positions `begin` … after each row's committed tokens."""

    def of(self, places: Sequence[int]) -> UniformSource:
        """The same numbers, of these rows alone."""


class UniformSupply:
    """One row's numbers. They may be made while a forward runs, for the round that will probably follow.

    A row that is not `racing` has no times: it is given ones where its neighbours race.

    Philox (Salmon et al., SC 2011) keyed by the row's seed; the counter names the round or the position, so there is
    nothing to save or roll back.
    """

    def __init__(self, seed: int, *, racing: bool = True) -> None:
        self._seed, self._racing = seed, racing
        self._uniforms: tuple[int, np.ndarray] = (-1, np.empty(0, np.float32))
        self._races: dict[tuple[int, int], Array] = {}

    def uniforms(self, index: int, count: int) -> np.ndarray:
        """The first `count` float32 uniforms of round `index`; more of them never change the first."""
        made, values = self._uniforms
        if made != index or len(values) < count:
            # float32 as drawn: a float64 just below 1 would round to 1.
            size = max(count, _UNIFORMS_AT_ONCE)
            values = self._generator(_ROUND_STREAM, index).random(size, dtype=np.float32)
            self._uniforms = (index, values)
        return values[:count]

    def race(self, position: int, size: int) -> Array:
        """Exponential times float32 [size] of a position, one a token id, all above 0."""
        if not self._racing:
            return mx.ones((size,), mx.float32)
        key = (position, size)
        if key not in self._races:
            while len(self._races) >= _RACES_KEPT:
                self._races.pop(next(iter(self._races)))
            bits = self._generator(_POSITION_STREAM, position).integers(0, 1 << 32, size, np.uint32)
            # Through float64: the times near 0 decide, and float32 is coarse just below 1.
            times = -np.log((bits + 0.5) * 2.0**-32)
            self._races[key] = mx.array(times.astype(np.float32))
        return self._races[key]

    def _generator(self, stream: int, index: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self._seed, counter=[0, 0, stream, index]))


class RoundUniforms:
    """The source of one round: each row's own supply, at the row's round and its next position."""

    def __init__(
        self, supplies: Sequence[UniformSupply], rounds: Sequence[int], positions: Sequence[int]
    ) -> None:
        self._supplies, self._rounds, self._positions = supplies, rounds, positions

    def draft(self, step: int, law: Law) -> Array:
        """Uniforms [B] for draft `step`."""
        return self._column(1 + 2 * step).astype(law.dtype)

    def accept(self, chances: Array) -> Array:
        """Uniforms [B, k] for the k judgements."""
        count = chances.shape[1]
        rows = [values[2 : 2 * count + 1 : 2] for values in self._values(2 * count + 1)]
        return mx.array(np.stack(rows)).astype(chances.dtype)

    def final(self, law: Law) -> Array:
        """Uniforms [B] for the correction or bonus token."""
        return self._column(0).astype(law.dtype)

    def races(self, begin: int, count: int, size: int) -> Array:
        """Exponential times [B, count, size]."""
        rows = [
            mx.stack([supply.race(position + place, size) for place in range(begin, begin + count)])
            for supply, position in zip(self._supplies, self._positions, strict=True)
        ]
        return mx.stack(rows)

    def of(self, places: Sequence[int]) -> RoundUniforms:
        """The same numbers, of these rows alone."""
        return RoundUniforms(
            [self._supplies[place] for place in places],
            [self._rounds[place] for place in places],
            [self._positions[place] for place in places],
        )

    def _column(self, place: int) -> Array:
        return mx.array(np.array([values[place] for values in self._values(place + 1)]))

    def _values(self, count: int) -> list[np.ndarray]:
        pairs = zip(self._supplies, self._rounds, strict=True)
        return [supply.uniforms(index, count) for supply, index in pairs]
