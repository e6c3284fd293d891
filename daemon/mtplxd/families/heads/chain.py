"""Drives a published head of several layers, each of which drafts one position. One row at a time.

Layer j has a cache of its own. Its slot i holds the pair (hidden for i, t_{i+1+j}), whose hidden is the state of layer
j − 1 at slot i, or in some families the target's h_i at every layer. Behind n true pairs of layer 0, layer j holds
n − j: the tokens of its next ones are not known yet, their hidden states are. Draft step j fills them in:

    slots n−j … n−1 of layer j  ←  tokens d_1 … d_j,  hidden states of layer j − 1 at these slots

and its last output gives d_{j+1}. What the drafts wrote is rolled back, the hidden states stay carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplxd.families.heads.driver import PublishedHead
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array, mx

_KEPT = 2
"""Carries of the newest and the one before it: an absorbed forward may be taken back once."""


class FirstCache:
    """Layer 0's cache, with what the further layers need of the text so far; all else is the cache's it stands for.

    `carries[b][n]` holds, behind n pairs of row b, for each further layer the hidden states of its slots from n − j on,
    [1, k, H].
    `drafts` are this round's tokens, each [1, 1], `outputs` what the newest of them made its layer's drafted slots.
    """

    def __init__(self, cache: LayerCache) -> None:
        self.inner = cache
        self.carries: list[dict[int, list[Array]]] = [{} for _ in cache.lengths]
        self.drafts: list[Array] = []
        self.outputs: Array | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def roll_back(self, lengths: Sequence[int]) -> None:
        """As the cache's; a round's drafts are over with it."""
        self.inner.roll_back(lengths)
        self.carries = [
            {pairs: hidden for pairs, hidden in carried.items() if pairs <= length}
            for carried, length in zip(self.carries, lengths, strict=True)
        ]
        self.forget_drafts()

    def join(self, other: FirstCache) -> None:
        """As the cache's; what is carried joins with its row."""
        self.inner.join(other.inner)
        self.carries = [*self.carries, *other.carries]
        self.forget_drafts()

    def leave(self, row: int) -> None:
        """As the cache's; what is carried leaves with its row."""
        self.inner.leave(row)
        self.carries[row] = self.carries[-1]
        self.carries.pop()
        self.forget_drafts()

    def copy_row(self, row: int) -> FirstCache:
        """As the cache's, with what is carried of that row."""
        copy = FirstCache(self.inner.copy_row(row))
        copy.carries = [dict(self.carries[row])]
        return copy

    def forget_drafts(self) -> None:
        self.drafts, self.outputs = [], None

    def carried(self, layers: int) -> list[Array | None]:
        """By layer, what is carried behind the pairs held now: nothing behind none. Raises ValueError for a gap."""
        pairs = self.lengths[0]
        if pairs == 0:
            return [None] * layers
        [carries] = self.carries
        if pairs not in carries:
            raise ValueError(f"a head of several layers cannot go on behind {pairs} pairs")
        return [None, *carries[pairs]]

    def carry(self, hidden: list[Array]) -> None:
        """Keeps what the further layers' next slots take, behind the pairs held now."""
        [carries] = self.carries
        carries.pop(self.lengths[0], None)
        carries[self.lengths[0]] = hidden
        self.carries = [dict(list(carries.items())[-_KEPT:])]

    @property
    def state(self) -> list[Array]:
        """The arrays to evaluate."""
        return [*self.inner.state, *self._carried]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.inner.nbytes + sum(array.nbytes for array in self._carried))

    @property
    def _carried(self) -> list[Array]:
        return [array for carries in self.carries for hidden in carries.values() for array in hidden]


class ChainHead(PublishedHead):
    """Its state is the y of the newest layer that ran, and `logits` are that layer's."""

    _newest = 0

    def make_cache(self, rows: int, body_cache: Sequence[LayerCache]) -> list[LayerCache]:
        """Empty caches, one a layer. Raises ValueError for several rows."""
        if rows != 1:
            raise ValueError("a head of several layers serves one row at a time")
        first, *further = super().make_cache(rows, body_cache)
        return [FirstCache(first), *further]

    def absorb(self, tokens: Array, taps: Taps, cache: list[LayerCache]) -> Array:
        """Runs true pairs through every layer as far as their tokens are known; gives layer 0's y [1, L, H]."""
        (target,) = taps
        first: Any = cache[0]
        first.forget_drafts()
        pairs, carried = first.lengths[0], first.carried(len(cache))
        layers = [first.inner, *cache[1:]]
        newest = state = self.run_layer(0, tokens, target, layers)
        left = []
        for j in range(1, len(cache)):
            hidden = _join(carried[j], target if self._of_target else self.fed_back(j - 1, state))
            early = max(0, j - pairs)  # this layer's first slot takes a later token
            count = max(0, tokens.shape[1] - early)
            known = hidden[:, :count]
            state = self.run_layer(j, tokens[:, early:], known, layers) if count else known
            left.append(hidden[:, count:])
        first.carry(left)
        self._newest = 0
        return newest

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:  # noqa: ARG002
        """Runs the next layer over the drafts so far; gives its newest y [1, 1, H]."""
        first: Any = cache[0]
        drafts = [*first.drafts, tokens]
        j, pairs = len(drafts), first.lengths[0]
        hidden = first.carried(len(cache))[j]
        if not self._of_target and first.outputs is not None:
            hidden = _join(hidden, self.fed_back(j - 1, first.outputs))
        known = mx.concatenate(drafts[-min(j, pairs) :], axis=1)
        first.drafts, first.outputs = drafts, self.run_layer(j, known, hidden, cache)
        self._newest = j
        return first.outputs[:, -1:]

    def logits(self, state: Array) -> Array:
        """The newest state [1, L, H] to logits [1, L, V]."""
        return self.layer_logits(self._newest, state)

    @property
    def _of_target(self) -> bool:
        return self.family.chained == "target"


def _join(before: Array | None, after: Array) -> Array:
    return after if before is None else mx.concatenate([before, after], axis=1)
