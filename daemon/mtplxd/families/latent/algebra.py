"""The absorbed attention itself, on arrays alone. Which class they come from and which path pays is not known here.

Shapes: B rows, n heads, L positions, T slots, r the latent's rank, R the rotary dimensions.
"""

from __future__ import annotations

from mtplxd.platform.mlx import Array, mx


def attend(content: Array, rotary: Array, latents: Array, positions: Array, mask: Array | None) -> Array:
    """Attends over the latents themselves: what each head sees of them, [B, n, L, r], still to be spread out.

    `content` [B, n, L, r] and `rotary` [B, n, L, R] are the two parts of the queries, scaled already; `latents`
    [B, 1, T, r] and `positions` [B, 1, T, R] are the cache's; `mask` is bool, broadcast against [B, n, L, T].

    All heads share one latent, so heads and positions together are the rows of a single product a batch row: the cache
    is read once for all of them, where mlx-lm reads it once a head.
    """
    rows, heads, length, rank = content.shape
    slots = latents.shape[2]
    latents, positions = latents[:, 0], positions[:, 0]
    scores = rotary.reshape(rows, heads * length, -1) @ positions.swapaxes(-1, -2)
    scores = mx.addmm(scores, content.reshape(rows, heads * length, rank), latents.swapaxes(-1, -2))
    scores = scores.reshape(rows, heads, length, slots)
    if mask is not None:
        scores = mx.where(mask, scores, mx.array(mx.finfo(scores.dtype).min, scores.dtype))
    weights = mx.softmax(scores, axis=-1, precise=True).reshape(rows, heads * length, slots)
    return (weights @ latents).reshape(rows, heads, length, rank)


def causal_mask(length: int, slots: int) -> Array:
    """Bool [length, slots]: each of the last `length` slots sees itself and those before."""
    return mx.arange(slots) <= mx.arange(slots - length, slots)[:, None]
