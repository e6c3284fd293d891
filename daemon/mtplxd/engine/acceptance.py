"""The acceptance rules, once, as pure functions over explicit randomness and laws. Draws nothing, filters nothing.

`token` is speculative sampling (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318): accept
draft x with min(1, p(x)/q(x)); on the first rejection the next token comes from norm(max(p − q, 0)), after k
acceptances from p. The law of the text is p's, whatever q the drafts were drawn from.

`block` is block verification (Sun et al., ICLR 2025, arXiv 2403.10444): drafts are judged together, and what the last
ones earn can carry the ones before. Same law; the accepted length is never shorter in expectation.

`coupled` races tokens: with E ~ Exp(1) a token's own, argmin E/p follows p (the Gumbel maximum in other clothes). Draft
and target share the race of a position, so the text is a function of p and the races, whatever q is.

Shapes: B rows, k drafts, V vocabulary; p [B, k+1, V], q [B, k, V], drafts [B, k], lengths [B] (drafts that count).
"""

from __future__ import annotations

from typing import NamedTuple

from mtplxd.platform.mlx import Array, mx


class Chances(NamedTuple):
    """What uniforms are compared with, [B, k], and the weights [B, k+1] the target's laws have in the residual."""

    pass_with: Array
    weights: Array


def token_chances(p: Array, q: Array, drafts: Array) -> Chances:
    """min(1, p(x)/q(x)) for each draft x. A draft its own law excludes is never accepted."""
    ratios = _ratios(p, q, drafts)
    return Chances(mx.minimum(ratios, 1), mx.ones((ratios.shape[0], ratios.shape[1] + 1), p.dtype))


def block_chances(p: Array, q: Array, drafts: Array, lengths: Array) -> Chances:
    """Block verification's h and running products r (its algorithm 2): draft i, counted from 1, passes with

        h_i = S_i / (S_i + 1 − r_i),  S_i = Σ_x max(r_i p_i(x) − q_i(x), 0),  r_i = min(r_{i−1} p(x_i)/q(x_i), 1)

    and the last one that counts with h = r. Rows that count fewer drafts end earlier.
    """
    products = _running_products(_ratios(p, q, drafts))
    count = drafts.shape[1]
    excess = mx.maximum(products[:, 1:-1, None] * p[:, 1:count] - q[:, 1:], 0).sum(axis=-1)
    spare = excess + 1 - products[:, 1:-1]
    # Nothing spare: both laws are one and the same, and the draft stays.
    inner = mx.where(spare > 0, excess / mx.where(spare > 0, spare, 1), 1)
    chances = mx.concatenate([inner, products[:, -1:]], axis=1)
    is_last = mx.arange(1, count + 1) == lengths[:, None]
    return Chances(mx.where(is_last, products[:, 1:], chances), products)


def count_before_failure(passed: Array, lengths: Array) -> Array:
    """Drafts before the first that did not pass, [B]; `passed` bool [B, k]. How `token` and equality count."""
    counted = passed & (mx.arange(passed.shape[1]) < lengths[:, None])
    return mx.sum(mx.cumprod(counted.astype(mx.int32), axis=1), axis=1)


def count_to_last_pass(passed: Array, lengths: Array) -> Array:
    """Drafts up to the last that passed, [B]; `passed` bool [B, k]. How `block` counts."""
    places = mx.arange(1, passed.shape[1] + 1)
    return mx.max(mx.where(passed & (places <= lengths[:, None]), places, 0), axis=1)


def residual_law(p: Array, q: Array, weights: Array, accepted: Array, lengths: Array) -> Array:
    """What the token after `accepted` [B] drafts is drawn from, [B, V], not normalised.

    max(w·p − q, 0) where a draft was rejected, p where all that count were accepted, and p where rounding left the
    difference without mass; w are the weights [B, k+1] of the rule.
    """
    here = _row_at(p, accepted)
    if q.shape[1] == 0:
        return here
    nothing = mx.zeros_like(q[:, :1])
    padded = mx.concatenate([q, nothing], axis=1)
    rejected = accepted < lengths
    there = _row_at(padded, mx.where(rejected, accepted, q.shape[1]))
    weight = mx.where(rejected, token_at(weights, accepted), 1)[:, None]
    left = mx.maximum(weight * here - there, 0)
    empty = mx.sum(left, axis=-1, keepdims=True) <= 0
    return left + here * empty.astype(here.dtype)


def race(law: Array, times: Array) -> Array:
    """The winner of each position's race, int32 [...]: law and times [..., V]; ties go to the lower id."""
    return mx.argmax(law / times, axis=-1).astype(mx.int32)


def equal_passed(best: Array, drafts: Array) -> Array:
    """Greedy and `coupled`: a draft passes iff it is the target's own choice; best [B, k+1], gives bool [B, k]."""
    return best[:, : drafts.shape[1]] == drafts


def token_at(values: Array, places: Array) -> Array:
    """values [B, n] at places [B]: [B]."""
    return mx.take_along_axis(values, places[:, None], axis=1)[:, 0]


def _ratios(p: Array, q: Array, drafts: Array) -> Array:
    """p(x)/q(x) for each draft x, [B, k]; 0 where q excludes it."""
    places = drafts[..., None]
    target = mx.take_along_axis(p[:, : drafts.shape[1]], places, axis=-1)[..., 0]
    draft = mx.take_along_axis(q, places, axis=-1)[..., 0]
    possible = draft > 0
    return mx.where(possible, target / mx.where(possible, draft, 1), mx.zeros_like(target))


def _running_products(ratios: Array) -> Array:
    """r_0 = 1 and r_i = min(r_{i−1} · ratio_i, 1), [B, k+1]."""
    products = [mx.ones_like(ratios[:, 0])]
    for place in range(ratios.shape[1]):
        products.append(mx.minimum(products[-1] * ratios[:, place], 1))
    return mx.stack(products, axis=1)


def _row_at(laws: Array, places: Array) -> Array:
    """laws [B, n, V] at places [B]: [B, V], each copied whole."""
    return laws[mx.arange(laws.shape[0]), places]
