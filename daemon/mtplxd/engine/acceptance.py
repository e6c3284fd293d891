"""The acceptance rules, once, as pure functions over explicit uniforms and laws. Draws nothing, filters nothing.

`token` is speculative sampling (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318): accept
draft x with min(1, p(x)/q(x)); on the first rejection the next token comes from norm(max(p − q, 0)), after k
acceptances from p. The law of the text is p's, whatever q the drafts were drawn from.

Shapes: B rows, k drafts, V vocabulary; p [B, k+1, V], q [B, k, V], drafts [B, k], lengths [B] (drafts that count).
"""

from __future__ import annotations

from mtplxd.platform.mlx import Array, mx


def accept_chances(p: Array, q: Array, drafts: Array) -> Array:
    """min(1, p(x)/q(x)) for each draft x, [B, k]. A draft its own law excludes is never accepted."""
    places = drafts[..., None]
    target = mx.take_along_axis(p[:, : drafts.shape[1]], places, axis=-1)[..., 0]
    draft = mx.take_along_axis(q, places, axis=-1)[..., 0]
    possible = draft > 0
    return mx.where(possible, mx.minimum(target / mx.where(possible, draft, 1), 1), mx.zeros_like(target))


def count_accepted(passed: Array, lengths: Array) -> Array:
    """Drafts before the first that did not pass, [B]; `passed` bool [B, k]."""
    counted = passed & (mx.arange(passed.shape[1]) < lengths[:, None])
    return mx.sum(mx.cumprod(counted.astype(mx.int32), axis=1), axis=1)


def residual_law(p: Array, q: Array, accepted: Array, lengths: Array) -> Array:
    """What the token after `accepted` [B] drafts is drawn from, [B, V], not normalised.

    max(p − q, 0) where a draft was rejected, p where all that count were accepted, and p where rounding left the
    difference without mass.
    """
    here = _row_at(p, accepted)
    if q.shape[1] == 0:
        return here
    nothing = mx.zeros_like(q[:, :1])
    padded = mx.concatenate([q, nothing], axis=1)
    there = _row_at(padded, mx.where(accepted < lengths, accepted, q.shape[1]))
    left = mx.maximum(here - there, 0)
    empty = mx.sum(left, axis=-1, keepdims=True) <= 0
    return left + here * empty.astype(here.dtype)


def greedy_passed(best: Array, drafts: Array) -> Array:
    """Greedy: a draft passes iff it is the target's argmax; best [B, k+1], gives bool [B, k]."""
    return best[:, : drafts.shape[1]] == drafts


def token_at(tokens: Array, places: Array) -> Array:
    """tokens [B, k+1] at places [B]: [B]."""
    return mx.take_along_axis(tokens, places[:, None], axis=1)[:, 0]


def _row_at(laws: Array, places: Array) -> Array:
    """laws [B, n, V] at places [B]: [B, V], each copied whole."""
    return laws[mx.arange(laws.shape[0]), places]
