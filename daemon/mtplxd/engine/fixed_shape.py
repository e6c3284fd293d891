"""One shape for every forward of a row, so that its numbers are the same bits at every depth. Decides no token.

A logit's last bits depend on the shape of the forward that made it, and on nothing else in it. So each verify has the
same number of positions, unused ones padded, and attends over as many slots as the block of its positions says, never
over as many as happen to be filled. A round stays inside one block; its padding may reach beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mtplxd.families.protocols import LayerCache, Taps, Target
from mtplxd.platform.mlx import Array, mx

if TYPE_CHECKING:
    from mtplxd.engine.batch import Batch

BLOCK = 256
"""Slots attention grows by; a round never drafts across a multiple of it."""


def fix_shape(batch: Batch, width: int) -> None:
    """Pads every verify forward of a batch of one row to `width` positions."""
    batch.width = width
    for layer in batch.cache:
        layer.fix_window(BLOCK, width)


def room_in_block(committed: int) -> int:
    """How many drafts fit behind `committed` tokens, the last of which is verified with them."""
    return BLOCK - 1 - (committed - 1) % BLOCK


def run_in_shape(target: Target, tokens: Array, cache: list[LayerCache], width: int) -> tuple[Array, Taps]:
    """Extends the caches by tokens [B, L] in a forward of `width` positions: hidden [B, width, H], taps [B, L, H].

    Logits are made of the whole hidden, for they are part of the shape; those of the first L positions count.
    """
    count = tokens.shape[1]
    end = [length + count for length in cache[0].lengths] if cache else []
    hidden, taps = target.run(mx.pad(tokens, [(0, 0), (0, width - count)]), cache)
    for layer in cache:
        layer.roll_back(end)
    return hidden, tuple(tap[:, :count] for tap in taps)


def is_shape_stable(target: Target, width: int) -> bool:
    """Whether forwards of one shape give a position the same bits wherever in them it stands.

    Runs `width` positions at once, then one by one with the rest padded; a handful of forwards.
    """
    tokens = [place % min(target.vocab_size, 97) for place in range(BLOCK // 8 + width)]
    begin = len(tokens) - width
    at_once = _run(target, tokens, begin, width, [width])
    one_by_one = _run(target, tokens, begin, width, [1] * width)
    return bool(mx.array_equal(at_once, one_by_one).item())


def _run(target: Target, tokens: Sequence[int], begin: int, width: int, parts: Sequence[int]) -> Array:
    """Logits [width, V] of the last `width` tokens, so many of them a forward."""
    cache = target.make_cache(1)
    target.run(mx.array([tokens[:begin]], mx.int32), cache)
    for layer in cache:
        layer.fix_window(BLOCK, width)
    found = []
    for count in parts:
        found.append(_forward(target, tokens[begin : begin + count], cache, width))
        begin += count
    return mx.concatenate(found)


def _forward(target: Target, tokens: Sequence[int], cache: list[LayerCache], width: int) -> Array:
    hidden, _ = run_in_shape(target, mx.array([tokens], mx.int32), cache, width)
    return target.logits(hidden)[0, : len(tokens)]
