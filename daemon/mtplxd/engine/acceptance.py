"""The acceptance rules, once, as pure functions over explicit randomness and laws. Draws nothing, filters nothing.

`token` is speculative sampling (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318): accept
draft x with min(1, p(x)/q(x)); on the first rejection the next token comes from norm(max(p − q, 0)), after k
acceptances from p. The law of the text is p's, whatever q the drafts were drawn from.

`block` is block verification (Sun et al., ICLR 2025, arXiv 2403.10444): drafts are judged together, and what the last
ones earn can carry the ones before. Same law; the accepted length is never shorter in expectation.

`coupled` races tokens: with E ~ Exp(1) a token's own, argmin E/p follows p (the Gumbel maximum in other clothes). Draft
and target share the race of a position, so the text is a function of p and the races, whatever q is.

No rule asks for q where p is 0, but at the draft itself. So laws are compared over places: c of them a position, all
ids that p has mass on among them, which may be the whole vocabulary.

Shapes: B rows, k drafts; p [B, k+1, c], q [B, k, c], drafts [B, k], lengths [B] (drafts that count).
"""

from __future__ import annotations

from typing import NamedTuple

from mtplxd.engine.exponential import add_up
from mtplxd.platform.mlx import Array, mx


class Laws(NamedTuple):
    """p [B, k+1, c] and q [B, k, c] over the same places, and what each has at the drafts, [B, k]."""

    p: Array
    q: Array
    p_drafted: Array
    q_drafted: Array


class Chances(NamedTuple):
    """What uniforms are compared with, [B, k], and the weights [B, k+1] the target's laws have in the residual."""

    pass_with: Array
    weights: Array


def token_chances(laws: Laws) -> Chances:
    """min(1, p(x)/q(x)) for each draft x. A draft its own law excludes is never accepted."""
    ratios = _ratios(laws)
    return Chances(mx.minimum(ratios, 1), mx.ones((ratios.shape[0], ratios.shape[1] + 1), ratios.dtype))


def block_chances(laws: Laws, lengths: Array) -> Chances:
    """Block verification's h and running products r (its algorithm 2): draft i, counted from 1, passes with

        h_i = S_i / (S_i + 1 − r_i),  S_i = Σ_x max(r_i p_i(x) − q_i(x), 0),  r_i = min(r_{i−1} p(x_i)/q(x_i), 1)

    and the last one that counts with h = r. Rows that count fewer drafts end earlier.
    """
    products = _running_products(_ratios(laws))
    count = laws.q.shape[1]
    if count == 1:
        return Chances(products[:, 1:], products)
    beyond = mx.maximum(products[:, 1:-1, None] * laws.p[:, 1:count] - laws.q[:, 1:], 0)
    excess = add_up(beyond)[..., 0]
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


def residual_law(laws: Laws, weights: Array, accepted: Array, lengths: Array) -> Array:
    """What the token after `accepted` [B] drafts is drawn from, [B, c], not normalised.

    max(w·p − q, 0) where a draft was rejected, p where all that count were accepted, and p where rounding left the
    difference without mass; w are the weights [B, k+1] of the rule.
    """
    here, last = _row_at(laws.p, accepted), laws.q.shape[1] - 1
    rejected = (accepted < lengths)[:, None]
    there = mx.where(rejected, _row_at(laws.q, mx.minimum(accepted, last)), 0)
    weight = mx.where(rejected, token_at(weights, accepted)[:, None], 1)
    left = mx.maximum(weight * here - there, 0)
    return mx.where(add_up(left) <= 0, here, left)


def race(weights: Array, times: Array) -> Array:
    """The winning place of each position's race, int32 [...]: weights in proportion to its law, and times, [..., c].

    Ties go to the lower place.
    """
    return mx.argmax(weights / times, axis=-1).astype(mx.int32)


def equal_passed(best: Array, drafts: Array) -> Array:
    """Greedy and `coupled`: a draft passes iff it is the target's own choice; best [B, k+1], gives bool [B, k]."""
    return best[:, : drafts.shape[1]] == drafts


def token_at(values: Array, places: Array) -> Array:
    """values [B, n] at places [B]: [B]."""
    return mx.take_along_axis(values, places[:, None], axis=1)[:, 0]


def _ratios(laws: Laws) -> Array:
    """p(x)/q(x) for each draft x, [B, k]; 0 where q excludes it."""
    possible = laws.q_drafted > 0
    shares = laws.p_drafted / mx.where(possible, laws.q_drafted, 1)
    return mx.where(possible, shares, mx.zeros_like(shares))


def _running_products(ratios: Array) -> Array:
    """r_0 = 1 and r_i = min(r_{i−1} · ratio_i, 1), [B, k+1]."""
    products = [mx.ones_like(ratios[:, 0])]
    for place in range(ratios.shape[1]):
        products.append(mx.minimum(products[-1] * ratios[:, place], 1))
    return mx.stack(products, axis=1)


def _row_at(laws: Array, places: Array) -> Array:
    """laws [B, n, c] at places [B]: [B, c], each copied whole."""
    return laws[mx.arange(laws.shape[0]), places]
