"""Whether a training was worth it: from what held-out text accepts before and after. Pure.

A head that agrees with its target no better than a constant guess would is no head of this body, however it was made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mtplxd.forge.held_out import Acceptance, spoken_after
from mtplxd.forge.losses import nucleus, soften
from mtplxd.forge.shards import GENERATED, Shard

Floats = npt.NDArray[np.float32]
USELESS = 0.05
"""Acceptance at depth 1 at or under which no depth can win, as tune has it."""
LEAST_GAIN = 0.01
"""Tokens a round by which a trained head must be better than it was."""


def tokens_a_round(found: Acceptance) -> float:
    """What decoding at the deepest measured depth would commit a round."""
    return 1 + sum(found.rounds[-1])


def guess_acceptance(mass: npt.NDArray[np.float64], shards: Sequence[Shard], top_p: float) -> float:
    """What a draft from one distribution for every place would be accepted: `mass` [V], the expected counts of tokens
    in other text of the target's. 0 where the target said nothing."""
    guess = (mass / max(mass.sum(), 1e-9)).astype(np.float32)
    found = np.concatenate([_accepted(guess, shard, top_p) for shard in shards])
    return float(found.mean()) if found.size else 0.0


def _accepted(guess: Floats, shard: Shard, top_p: float) -> Floats:
    target = nucleus(soften(np.asarray(shard.top_logprobs), np.asarray(shard.logsumexp)), top_p)
    shared = np.minimum(target, guess[np.asarray(shard.top_ids).astype(np.int64)]).sum(axis=-1)
    said = spoken_after(np.asarray(shard.origin) == GENERATED, 0)
    chosen: Floats = shared[:, 1:][said[:, :-1]]
    return chosen


def refuse_start(before: Acceptance, guess: float) -> str:
    """Why a head is not worth a fine-tuning, empty where it is."""
    if _helps(before, guess):
        return ""
    return (
        f"the head agrees with its target {before.overlap[0]:.1%} of the time, a constant guess {guess:.1%}:"
        " it is not a head of this body"
    )


def judge_training(before: Acceptance, after: Acceptance, guess: float) -> str:
    """Why a training failed, empty where it did not."""
    if not _helps(after, guess):
        return f"held-out acceptance is {after.overlap[0]:.1%} after training, a constant guess would have {guess:.1%}"
    gain = tokens_a_round(after) - tokens_a_round(before)
    if gain < LEAST_GAIN:
        return (
            f"held-out text gives {tokens_a_round(after):.3f} tokens a round after training,"
            f" {tokens_a_round(before):.3f} before"
        )
    return ""


def _helps(found: Acceptance, guess: float) -> bool:
    return found.overlap[0] > max(USELESS, guess)
