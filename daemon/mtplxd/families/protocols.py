"""What the engine asks of a body, of a head and of their caches. Implementations live beside this file; the engine
knows only these.

Shapes: B rows, L positions, H hidden size, V vocabulary, D draft vocabulary, T taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from mtplxd.platform.mlx import Array

Taps = tuple[Array, ...]
"""The body's hidden states a head takes, T arrays of [B, L, H], in the order the head joins them."""

Tap = int | str
"""Which hidden state: a count of layers, `"post"` (after the final norm) or `"pre"` (what enters it)."""


class LayerCache(Protocol):
    """What one layer remembers of each row, `lengths[b]` positions of row b. Layers read it in mlx-lm's protocol."""

    @property
    def lengths(self) -> list[int]:
        """Positions held of each row."""

    @property
    def offset(self) -> int | Array:
        """Where the next position goes: an integer for one row, int32 [B] for several."""

    def roll_back(self, lengths: Sequence[int]) -> None:
        """Forgets each row's positions from `lengths[b]` on. Raises ValueError where it cannot."""

    @property
    def state(self) -> list[Array]:
        """The arrays to evaluate, empty before the first write."""

    @property
    def nbytes(self) -> int:
        """Bytes held, capacity included."""

    def fix_window(self, block: int, width: int) -> None:
        """From now on forwards of `width` positions have one shape, wherever in a block of slots they begin."""

    def make_ready(self, other: Self) -> None:
        """Copies ahead what a cache of the same layer and one row has, which is about to join: rounds may be played
        between. Whoever else joins or leaves undoes it. Raises ValueError where either has a fixed window."""

    def is_ready(self, other: Self) -> bool:
        """Whether nothing is left to copy before it joins."""

    def forget_coming(self) -> None:
        """Who was made ready does not join."""

    def join(self, other: Self) -> None:
        """Appends the rows of another cache of the same layer, which is used up. Between rounds only.

        Costs a copy of what joins, seldom more. Raises ValueError where either has a fixed window.
        """

    def leave(self, row: int) -> None:
        """Takes a row out, the last one takes its place. Between rounds only; costs at most a row's copy, mostly."""

    def copy_row(self, row: int) -> Self:
        """A cache of that one row, which keeps no other row's arrays alive. Between rounds only."""

    def read_from(self, body_cache: Sequence[LayerCache]) -> None:
        """What this cache reads of the body's, if anything, it reads of these from now on: it was copied with them."""


class Target(Protocol):
    """A body and its output matrix."""

    vocab_size: int

    def make_cache(self, rows: int) -> list[LayerCache]:
        """Empty caches for `rows` rows, one a layer that keeps any."""

    def run(self, tokens: Array, cache: list[LayerCache]) -> tuple[Array, Taps]:
        """Extends the caches by tokens [B, L]; gives the final hidden [B, L, H] and the taps."""

    def logits(self, hidden: Array) -> Array:
        """Final hidden [..., H] to logits [..., V]."""


class Head(Protocol):
    """A multi-token-prediction head. Its state is opaque: what its logits come from and what recursion feeds back.

    Layer j of its caches takes part in draft step j, counted from 0, and holds j pairs fewer than layer 0.
    """

    depth_max: int
    draft_vocab: Array | None

    def make_cache(self, rows: int, body_cache: Sequence[LayerCache]) -> list[LayerCache]:
        """Empty caches for `rows` rows, one a head layer, beside the body's own for the same rows."""

    def absorb(self, tokens: Array, taps: Taps, cache: list[LayerCache]) -> Array:
        """Runs true pairs (taps of t_i, token t_{i+1}), tokens [B, L]; gives the states [B, L, H]."""

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:
        """Runs recursion pairs (state, draft), tokens [B, 1], state [B, 1, H]; gives the state [B, 1, H]."""

    def logits(self, state: Array) -> Array:
        """State [..., H] to logits over the draft vocabulary [..., D], or over V where `draft_vocab` is None."""
