"""How far plain decoding was from another token, and whether the shape noise could have carried it there. Pure."""

from __future__ import annotations

import numpy as np

from mtplxd.tune.identity import Parting
from mtplxd.tune.verify_chain import ROUNDING, Floats, bound_law


def judge_greedy(logits: Floats, plain: int, other: int, noise: float) -> Parting:
    """Of raw logits [V], the largest of which was plain decoding's: near where the gap is below twice the noise."""
    margin = float(logits[plain]) - float(logits[other])
    return Parting(margin, margin < 2 * noise)


def judge_coupled(
    logits: Floats, times: Floats, temperature: float, top_p: float, plain: int, other: int, noise: float
) -> Parting:
    """Of raw logits [V] and the position's race [V]: the score of an id is logit / temperature − log time.

    That is log p plus Gumbel noise, up to what all ids share. The margin is between the two scores, filters aside.
    It is a near-tie where the other token could have won the same race within twice the noise: top-p may keep it,
    and no token that top-p must keep scores higher by 2 × noise / temperature or more. So a token that plain
    decoding's law excludes, and one that lost only to tokens which the other law may have excluded, are forgiven
    exactly where the border of top-p lies within the noise.
    """
    scores = logits.astype(np.float64) / temperature - np.log(times.astype(np.float64))
    bounds = bound_law(logits, temperature, top_p, 2 * noise)
    ahead = scores - scores[other]
    beaten = bool((ahead[bounds.must] >= 2 * noise / temperature + ROUNDING).any())
    return Parting(float(ahead[plain]), bool(bounds.may[other]) and not beaten)
