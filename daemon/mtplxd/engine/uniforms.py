"""The one source of randomness: counter-based uniforms, a function of (seed, round) and nothing else.

A round asks for uniforms with the law each will be applied to. The real source ignores the law; a proof may put a
source in its place that walks through every outcome of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from mtplxd.platform.mlx import Array, mx


class UniformSource(Protocol):
    """Uniforms in [0, 1) for one round of B rows."""

    def draft(self, step: int, law: Array) -> Array:
        """For drawing draft `step` from law [B, V]; gives [B]."""

    def accept(self, chances: Array) -> Array:
        """For judging k drafts that pass with chances [B, k]; gives [B, k]."""

    def final(self, law: Array) -> Array:
        """For drawing the round's last token from law [B, V]; gives [B]."""


class CounterUniforms:
    """Philox (Salmon et al., SC 2011) keyed by a row's seed and counted by its round: nothing to save or roll back."""

    def __init__(self, seeds: Sequence[int], rounds: Sequence[int], depth: int) -> None:
        self._depth = depth
        drawn = [_block(seed, index, 2 * depth + 1) for seed, index in zip(seeds, rounds, strict=True)]
        self._values = np.stack(drawn)

    def draft(self, step: int, law: Array) -> Array:
        """Uniforms [B] for draft `step`."""
        return mx.array(self._values[:, step]).astype(law.dtype)

    def accept(self, chances: Array) -> Array:
        """Uniforms [B, k] for the k judgements; a row that could not draft has fewer than the round allowed."""
        judged = self._values[:, self._depth : self._depth + chances.shape[1]]
        return mx.array(judged).astype(chances.dtype)

    def final(self, law: Array) -> Array:
        """Uniforms [B] for the correction or bonus token."""
        return mx.array(self._values[:, -1]).astype(law.dtype)


class UniformSupply:
    """One row's sources. A source may be made while a forward runs, for the round that will probably follow."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._made: tuple[int, int, CounterUniforms] | None = None

    def prepare(self, index: int, depth: int) -> None:
        """Makes the source of round `index` in advance."""
        self._made = (index, depth, CounterUniforms([self._seed], [index], depth))

    def take(self, index: int, depth: int) -> CounterUniforms:
        """The source of round `index` at `depth`, whether it was prepared or not."""
        made, self._made = self._made, None
        if made is not None and made[:2] == (index, depth):
            return made[2]
        return CounterUniforms([self._seed], [index], depth)


def _block(seed: int, index: int, count: int) -> np.ndarray:
    """`count` float32 uniforms; float32 because a float64 just below 1 would round to 1."""
    generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, index]))
    return generator.random(count, dtype=np.float32)
