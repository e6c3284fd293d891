"""What the engine asks of a body and of a head. Implementations live beside this file; the engine knows only these.

Shapes: B rows, L positions, H hidden size, V vocabulary, D draft vocabulary, T taps.
"""

from __future__ import annotations

from typing import Protocol

from mtplxd.families.kv import RowCache
from mtplxd.platform.mlx import Array

Taps = tuple[Array, ...]
"""The body's hidden states a head takes, T arrays of [B, L, H], in the order the head joins them."""


class Target(Protocol):
    """A body and its output matrix."""

    vocab_size: int

    def make_cache(self, rows: int) -> list[RowCache]:
        """Empty caches for `rows` rows, one a layer."""

    def run(self, tokens: Array, cache: list[RowCache]) -> tuple[Array, Taps]:
        """Extends the caches by tokens [B, L]; gives the final hidden [B, L, H] and the taps."""

    def logits(self, hidden: Array) -> Array:
        """Final hidden [..., H] to logits [..., V]."""


class Head(Protocol):
    """A multi-token-prediction head. Its state z is both what its logits come from and what recursion feeds back."""

    depth_max: int
    draft_vocab: Array | None

    def make_cache(self, rows: int) -> list[RowCache]:
        """Empty caches for `rows` rows, one a head layer."""

    def absorb(self, tokens: Array, taps: Taps, cache: list[RowCache]) -> Array:
        """Runs true pairs (taps of t_i, token t_{i+1}), tokens [B, L]; gives z [B, L, H]."""

    def extend(self, tokens: Array, state: Array, cache: list[RowCache]) -> Array:
        """Runs recursion pairs (z, draft), tokens [B, 1], state [B, 1, H]; gives z [B, 1, H]."""

    def logits(self, state: Array) -> Array:
        """z [..., H] to logits over the draft vocabulary [..., D], or over V where `draft_vocab` is None."""
