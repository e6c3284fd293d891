"""A head in training: whichever kind it is, its states over whole rows and the logits made of them.

Owns how deep a head can be unrolled; how is `unrolling`'s, what is trained of it is `trainable`'s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.errors import FailedPrecondition
from mtplxd.families.adapter import AdapterHead
from mtplxd.families.caches import RowCache
from mtplxd.families.heads.chain import ChainHead
from mtplxd.families.heads.driver import PublishedHead
from mtplxd.forge.unrolling import ALL, unroll, unroll_layers
from mtplxd.packs.detector import DEPTH_LIMIT
from mtplxd.platform.mlx import Array, mx

Ints = npt.NDArray[np.int32]
Halves = npt.NDArray[np.float16]


class Learner:
    """Wraps a head that reads no cache of its body. `depths` is the most it can be unrolled to."""

    def __init__(self, head: Any) -> None:
        self.head = head
        self.module: Any = head.module
        self.depths = _depths_of(head)

    @property
    def recursive(self) -> bool:
        """Whether deeper states are recursion, of which some may be left out: not where each depth has a layer."""
        return self.depths > 1 and not isinstance(self.head, ChainHead)

    def states(self, tokens: Ints, taps: Halves, depths: int, chains: slice = ALL) -> list[Array]:
        """Token ids [B, P + depths] and taps [B, P, T, H] to the states of each depth, [B, P, H]; those of recursion
        behind the pairs of `chains` alone."""
        split = tuple(mx.array(taps[:, :, tap]).astype(mx.float32) for tap in range(taps.shape[2]))
        if isinstance(self.head, ChainHead):
            return unroll_layers(self.head, mx.array(tokens), split, depths)
        if self.depths == 1:
            return [self._alone(mx.array(tokens), split)]
        return unroll(self.head, mx.array(tokens), split, depths, chains)

    def logits(self, states: Array, depth: int) -> Array:
        """States [..., H] of a depth, from 1, to logits over the draft vocabulary [..., D]."""
        if isinstance(self.head, ChainHead):
            return self.head.layer_logits(depth - 1, states)
        return self.head.logits(states)

    def _alone(self, tokens: Array, taps: tuple[Array, ...]) -> Array:
        rows, positions = taps[0].shape[:2]
        return self.head.absorb(tokens[:, 1 : 1 + positions], taps, self.head.make_cache(rows, []))


def _depths_of(head: Any) -> int:
    """Raises FailedPrecondition for a head that cannot be run over whole rows."""
    if isinstance(head, ChainHead):
        return len(head.module.layers)
    if isinstance(head, AdapterHead):
        return DEPTH_LIMIT
    if not isinstance(head, PublishedHead):
        raise FailedPrecondition(
            "this kind of head cannot be trained", type(head).__name__, "use it as it was published"
        )
    plain = isinstance(head.family.cache(head.args, 0, 1), RowCache)
    return DEPTH_LIMIT if plain and not head.apart else 1
