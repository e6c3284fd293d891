"""What a head is trained to lower, from the target's recorded largest log-probabilities alone.

For one position with the target's distribution p (at `temperature`, restricted to the draft vocabulary and not
renormalised, so that a position counts as much as the draft vocabulary covers of it) and the head's q:

    soft cross-entropy   -Σ p(x) log q(x)
    rejection            Σ p̂(x) - Σ min(p̂(x), q(x)), p̂ the nucleus of p that the sampler keeps

Their weighted means are returned. Rejection is one minus the expected acceptance, up to what the vocabulary misses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mtplxd.forge.exponentials import logsumexp
from mtplxd.platform.mlx import Array, mx

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Aim:
    """The target at N positions: indices into the draft vocabulary [N, K] int32 (0 where it misses the token), p [N, K]
    (0 where it does), the sampler's nucleus of p, renormalised [N, K] (likewise), weights [N]."""

    places: Ints
    soft: Floats
    kept: Floats
    weights: Floats


def aim_at(
    top_ids: npt.NDArray[np.generic],
    top_logprobs: npt.NDArray[np.generic],
    logsumexp: Floats,
    draft_index: Ints,
    weights: Floats,
    top_p: float,
) -> Aim:
    """Recorded top ids and log-probabilities [N, K], logsumexp [N, 2] and the draft index of every token id [V] (-1
    outside) to p at temperature 0.6 and its nucleus."""
    soft = soften(top_logprobs, logsumexp)
    places = draft_index[top_ids.astype(np.int64)]
    inside = places >= 0
    kept = nucleus(soft, top_p)
    return Aim(
        places=np.where(inside, places, 0).astype(np.int32),
        soft=np.where(inside, soft, 0).astype(np.float32),
        kept=np.where(inside, kept, 0).astype(np.float32),
        weights=weights.astype(np.float32),
    )


def soften(top_logprobs: npt.NDArray[np.generic], logsumexp: Floats) -> Floats:
    """Log-probabilities at temperature 1 [..., K] to probabilities at 0.6, normalised over the full vocabulary."""
    shift = logsumexp[..., 1] - logsumexp[..., 0] / SOFT
    soft: Floats = np.exp(top_logprobs.astype(np.float32) / SOFT - shift[..., None])
    return soft


def nucleus(sorted_probs: Floats, top_p: float) -> Floats:
    """Descending probabilities [..., K] to the smallest set that holds `top_p`, renormalised, zeros elsewhere."""
    before = np.cumsum(sorted_probs, axis=-1) - sorted_probs
    kept = np.where(before < top_p, sorted_probs, 0)
    total: Floats = kept / kept.sum(axis=-1, keepdims=True)
    return total


SOFT = 0.6
"""The temperature whose logsumexp is recorded beside that of 1."""


def head_loss(logits: Array, aim: Aim, rejection_share: float) -> tuple[Array, Array]:
    """Head logits [N, D] to (loss, expected acceptance), weighted means over positions.

    loss = (1 - share) · soft cross-entropy + share · rejection, both at temperature 0.6.
    """
    scaled = logits * (1 / SOFT)
    log_total = logsumexp(scaled)
    log_q = mx.take_along_axis(scaled, mx.array(aim.places), axis=-1) - log_total
    soft, kept, weights = mx.array(aim.soft), mx.array(aim.kept), mx.array(aim.weights)
    total = weights.sum()
    accepted = mx.minimum(mx.exp(log_q), kept).sum(axis=-1)
    acceptance = (weights * accepted).sum() / total
    if rejection_share >= 1:
        return 1 - acceptance, acceptance
    entropy = -(weights[:, None] * soft * log_q).sum() / total
    return (1 - rejection_share) * entropy + rejection_share * (1 - acceptance), acceptance
