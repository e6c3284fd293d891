"""Drives a published head of several layers, each of which drafts one position.

Layer j has a cache of its own. Its slot i holds the pair (hidden for i, t_{i+1+j}), whose hidden is the state of layer
j − 1 at slot i, or in some families the target's h_i at every layer. Behind n true pairs of layer 0, layer j holds
n − j: the tokens of its next ones are not known yet, their hidden states are. Draft step j fills them in:

    slots n−j … n−1 of layer j  ←  tokens d_1 … d_j,  hidden states of layer j − 1 at these slots

and its last output gives d_{j+1}. What the drafts wrote is rolled back, the hidden states stay carried.
Rows that have fewer pairs than a layer's number begin with a later token there: each row is laid out by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplxd.families.heads.carrying import Absorbed, FirstCache, side_by_side
from mtplxd.families.heads.driver import PublishedHead
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array, mx


class ChainHead(PublishedHead):
    """Its state is the y of the newest layer that ran, and `logits` are that layer's."""

    _newest = 0

    def make_cache(self, rows: int, body_cache: Sequence[LayerCache]) -> list[LayerCache]:
        """Empty caches, one a layer."""
        first, *further = super().make_cache(rows, body_cache)
        return [FirstCache(first, of_target=self._of_target), *further]

    def absorb(self, tokens: Array, taps: Taps, cache: list[LayerCache]) -> Array:
        """Runs true pairs through every layer as far as their tokens are known; gives layer 0's y [B, L, H]."""
        (target,) = taps
        first: Any = cache[0]
        first.forget_drafts()
        begin, carried = list(first.lengths), first.carried(len(cache))
        layers = [first.inner, *cache[1:]]
        newest = state = self.run_layer(0, tokens, target, layers)
        known = []
        for j in range(1, len(cache)):
            after = target if self._of_target else self.fed_back(j - 1, state)
            hidden = side_by_side([_join(row[j], after[b : b + 1]) for b, row in enumerate(carried)])
            early = [max(0, j - pairs) for pairs in begin]  # this layer's first slot takes a later token
            count = max(0, tokens.shape[1] - min(early))
            if count:
                own = side_by_side([tokens[b : b + 1, skip:] for b, skip in enumerate(early)])
                state = self.run_layer(j, own, hidden[:, :count], layers)
            else:
                state = hidden[:, :0]
            known.append(hidden)
        first.keep(Absorbed(begin, tokens.shape[1], known))
        self._newest = 0
        return newest

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:  # noqa: ARG002
        """Runs the next layer over the drafts so far; gives its newest y [B, 1, H]."""
        first: Any = cache[0]
        drafts = [*first.drafts, tokens]
        j = len(drafts)
        counts = [min(j, pairs) for pairs in first.lengths]
        hidden = [row[j] for row in first.carried(len(cache))]
        if not self._of_target and first.outputs is not None:
            fed = self.fed_back(j - 1, first.outputs)
            before = [min(j - 1, pairs) for pairs in first.lengths]
            hidden = [_join(row, fed[b : b + 1, : before[b]]) for b, row in enumerate(hidden)]
        so_far = mx.concatenate(drafts, axis=1)
        known = side_by_side([so_far[b : b + 1, j - count :] for b, count in enumerate(counts)])
        first.drafts, first.outputs = drafts, self.run_layer(j, known, side_by_side(hidden), cache)
        self._newest = j
        return _at(first.outputs, [max(count, 1) - 1 for count in counts])

    def logits(self, state: Array) -> Array:
        """The newest state [B, L, H] to logits [B, L, V]."""
        return self.layer_logits(self._newest, state)

    @property
    def _of_target(self) -> bool:
        return self.family.chained == "target"


def _join(before: Array | None, after: Array) -> Array:
    return after if before is None or not before.shape[1] else mx.concatenate([before, after], axis=1)


def _at(states: Array, places: Sequence[int]) -> Array:
    """One position [B, 1, H] of each row."""
    if len(set(places)) == 1:
        return states[:, places[0] : places[0] + 1]
    return mx.take_along_axis(states, mx.array(places)[:, None, None], axis=1)
