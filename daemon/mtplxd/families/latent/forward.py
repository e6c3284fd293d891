"""The forward of a latent attention, absorbed: mlx-lm's own layers and cache, with `attend` in the middle.

Holds nothing: the attention instance has the weights, the caller the cache.
"""

from __future__ import annotations

from typing import Any

from mtplxd.families.latent.algebra import attend, causal_mask
from mtplxd.families.latent.forms import Form
from mtplxd.families.latent.sparse import attend_chosen
from mtplxd.platform.mlx import Array, mx


def attend_absorbed(
    attention: Any, form: Form, x: Array, mask: Array | str | None, cache: Any, factor: Array | None = None
) -> Array:
    """What `attention` gives for x [B, L, H], [B, L, H]. The cache is extended as the class's own forward does it.

    `mask` is bool, broadcast against [B, n, L, T], "causal" or None; `factor` multiplies the queries, [L, 1] or
    broadcast against [B, n, L, ·].
    """
    rows, length, _ = x.shape
    low = attention.q_a_layernorm(attention.q_a_proj(x)) if "q_a_proj" in attention else None
    kept = cache[0] if form.sparse else cache
    content, rotary = _queries(attention, x, low, kept.offset, factor)
    latents, positions = kept.update_and_fetch(*_entries(attention, x, kept.offset))
    if mask == "causal":
        mask = causal_mask(length, latents.shape[2])
    chosen = _choose(attention, x, low, mask, cache) if form.sparse else None
    if chosen is None:
        found = attend(content, rotary, latents, positions, mask)
    else:
        found = attend_chosen(content, rotary, latents, positions, mask, chosen)
    spread = attention.unembed_out(found).swapaxes(1, 2)
    if form.gate is not None:
        spread = form.gate(attention, x, spread)
    return getattr(attention, form.output)(spread.reshape(rows, length, -1))


def _queries(
    attention: Any, x: Array, low: Array | None, offset: int | Array, factor: Array | None
) -> tuple[Array, Array]:
    """Both parts of the queries, scaled: content [B, n, L, r] in the latent's space, rotary [B, n, L, R]."""
    rows, length, _ = x.shape
    heads = attention.embed_q.weight.shape[0]
    q = attention.q_proj(x) if low is None else attention.q_b_proj(low)
    q = q.reshape(rows, length, heads, -1).swapaxes(1, 2)
    q = q * (attention.scale * getattr(attention, "mla_scale_q_lora", 1.0))
    content, rotary = mx.split(q, [attention.qk_nope_head_dim], axis=-1)
    rotary = _rotate(attention, rotary, offset)
    if factor is not None:
        content, rotary = content * factor, rotary * factor
    return attention.embed_q(content), rotary


def _entries(attention: Any, x: Array, offset: int | Array) -> tuple[Array, Array]:
    """What the cache keeps of x: latents [B, 1, L, r] and rotated positions [B, 1, L, R]."""
    latents, positions = mx.split(attention.kv_a_proj_with_mqa(x), [attention.kv_lora_rank], axis=-1)
    latents = attention.kv_a_layernorm(latents)
    if hasattr(attention, "mla_scale_kv_lora"):
        latents = latents * attention.mla_scale_kv_lora
    return latents[:, None], _rotate(attention, positions[:, None], offset)


def _rotate(attention: Any, part: Array, offset: int | Array) -> Array:
    """Kimi's classes have no rotary embedding; their dimensions are used as they are."""
    return attention.rope(part, offset) if hasattr(attention, "rope") else part


def _choose(attention: Any, x: Array, low: Array | None, mask: Array | None, cache: Any) -> Array | None:
    """The indexer's slots [B, 1, L, K], None while the cache holds no more than it would choose."""
    chosen = attention.indexer(x, low, mask, cache=cache[1])
    # The indexer's cache grows whether or not its choice is used, so it must be evaluated with the other one.
    cache[0].keys = mx.depends(cache[0].keys, (cache[1].keys, cache[1].values))
    return chosen
