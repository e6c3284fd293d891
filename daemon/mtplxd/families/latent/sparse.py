"""Attention that an indexer narrows to a few slots a position (DeepSeek-V3.2, GLM-5). Does not choose the slots.

Two ways to the same sum over the chosen and visible slots: hide the others, or gather the chosen.
"""

from __future__ import annotations

from mtplxd.families.latent.algebra import attend
from mtplxd.platform.mlx import Array, mx


def attend_chosen(
    content: Array, rotary: Array, latents: Array, positions: Array, mask: Array | None, chosen: Array
) -> Array:
    """As `attend`, over the slots `chosen` [B, 1, L, K] of each position that `mask` lets it see."""
    length, kept, slots = content.shape[2], chosen.shape[-1], latents.shape[2]
    if length * kept < slots:
        return _attend_gathered(content, rotary, latents, positions, mask, chosen)
    nowhere = mx.zeros((*chosen.shape[:3], slots), mx.bool_)
    among = mx.put_along_axis(nowhere, chosen, mx.array(True), axis=-1)
    return attend(content, rotary, latents, positions, among if mask is None else among & mask)


def _attend_gathered(
    content: Array, rotary: Array, latents: Array, positions: Array, mask: Array | None, chosen: Array
) -> Array:
    """Each position becomes a row of its own, with the slots chosen for it as its cache."""
    rows, heads, length, rank = content.shape
    kept, slots = chosen.shape[-1], latents.shape[2]
    if mask is not None:
        seen = mx.broadcast_to(mask, (rows, 1, length, slots))
        mask = mx.take_along_axis(seen, chosen, axis=-1).reshape(rows * length, 1, 1, kept)
    found = attend(
        _as_rows(content),
        _as_rows(rotary),
        _gather(latents, chosen),
        _gather(positions, chosen),
        mask,
    )
    return found.reshape(rows, length, heads, rank).swapaxes(1, 2)


def _as_rows(queries: Array) -> Array:
    rows, heads, length, size = queries.shape
    return queries.swapaxes(1, 2).reshape(rows * length, heads, 1, size)


def _gather(cached: Array, chosen: Array) -> Array:
    """Slots of [B, 1, T, size] by [B, 1, L, K], as [B·L, 1, K, size]."""
    rows, _, length, kept = chosen.shape
    places = chosen.reshape(rows, 1, length * kept, 1)
    places = mx.broadcast_to(places, (*places.shape[:3], cached.shape[-1]))
    return mx.take_along_axis(cached, places, axis=2).reshape(rows * length, 1, kept, -1)
