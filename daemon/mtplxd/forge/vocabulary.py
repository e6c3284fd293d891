"""Chooses the draft vocabulary: the tokens that carry most of the target's probability over recorded answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mtplxd.forge.losses import soften
from mtplxd.forge.shards import FORCED, read_shard

Ints = npt.NDArray[np.int32]


def token_mass(folder: Path, shards: Sequence[int], vocab_size: int) -> npt.NDArray[np.float64]:
    """Expected count of every token [V] at temperature 0.6 where the target spoke."""
    mass = np.zeros(vocab_size)
    for index in shards:
        shard = read_shard(folder, index)
        spoken = np.asarray(shard.origin) != FORCED
        probs = soften(np.asarray(shard.top_logprobs)[spoken], np.asarray(shard.logsumexp)[spoken])
        ids = np.asarray(shard.top_ids)[spoken].astype(np.int64)
        mass += np.bincount(ids.ravel(), weights=probs.ravel(), minlength=vocab_size)
    return mass


def choose_vocabulary(mass: npt.NDArray[np.float64], size: int, always: Iterable[int] = ()) -> Ints:
    """The `size` heaviest token ids (ties to the lower id) with `always` among them, ascending."""
    raised = mass.copy()
    raised[list(always)] = np.inf
    order = np.argsort(-raised, kind="stable")[: min(size, len(mass))]
    return np.sort(order).astype(np.int32)
