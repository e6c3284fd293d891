"""Drives a Gemma 4 assistant: a drafter without keys and values of its own, which reads the target's.

Nothing it was fed before leaves a trace in it, so of the pairs it is given only the newest of a row counts. It drafts
a whole block at one position and reads, at every step, what the target holds then: after the roll-back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from mtplxd.families.heads.gemma4_layers import AssistantModule
from mtplxd.families.heads.gemma4_reading import BorrowedCache
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array, tree

AHEAD = {"hidden": 0, "token": 1}
"""How far behind the newest of L slots a block stands: at the hidden state it begins with, L − 1, or at its token, L.
Three engines do the first, transformers the second; what it was trained with is not published."""


class AssistantHead:
    """Drives an AssistantModule behind the engine's `Head`. Its state is the blocks' output before the norm.

    `sources` says which layer of the target is read for each kind of layer.
    """

    draft_vocab: Array | None = None

    def __init__(
        self,
        module: AssistantModule,
        embedding: Any,
        sources: Mapping[str, int],
        position: str,
        depth_max: int,
    ) -> None:
        self.module = module
        self.depth_max = depth_max
        self.position = position
        self.sources = sources
        self._embed = embedding
        self._ahead = AHEAD[position]

    def make_cache(self, rows: int, body_cache: Sequence[LayerCache]) -> list[LayerCache]:
        """One cache, which counts this head's pairs and lends it the keys and values of `body_cache`."""
        return [BorrowedCache(rows, self.sources, self.module.window, body_cache)]

    def absorb(self, tokens: Array, taps: Taps, cache: list[LayerCache]) -> Array:
        """Counts true pairs (final-normed hidden of t_i, t_{i+1}) and drafts from them: y [B, L, h].

        Of one row only the newest, y [B, 1, h]; of several, each row's newest is right and nothing before it means
        anything.
        """
        [hidden], lent = taps, _lent(cache)
        lent.count(tokens.shape[1])
        if tokens.shape[0] == 1:
            tokens, hidden = tokens[:, -1:], hidden[:, -1:]
        return self._run(tokens, hidden, lent)

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:
        """Drafts on from a draft and the y before it, [B, 1, h], at the same position; gives y [B, 1, h]."""
        lent = _lent(cache)
        lent.count(tokens.shape[1])
        return self._run(tokens, self.module.feed_back(state), lent)

    def logits(self, state: Array) -> Array:
        """y [..., h] to logits [..., V]."""
        return self.module.logits(state)

    @property
    def nbytes(self) -> int:
        """Bytes of the assistant's own parameters; the table its tokens come from is the target's."""
        return sum(array.nbytes for _, array in tree.tree_flatten(self.module.parameters()))

    def _run(self, tokens: Array, hidden: Array, lent: BorrowedCache) -> Array:
        x = self.module.join(self._embed(tokens), hidden)
        return self.module.run(x, lent.read(self._ahead), lent.position(self._ahead))


def _lent(cache: Sequence[LayerCache]) -> BorrowedCache:
    [layer] = cache
    return cast(BorrowedCache, layer)
