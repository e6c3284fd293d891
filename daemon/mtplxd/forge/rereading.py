"""Runs the target once over whole rows whose tokens are known, and reads off what training needs of it.

It is the same as stepping token by token (`stepping`), up to the rounding of wider forwards, at a fraction of the cost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mtplxd.families.protocols import Target
from mtplxd.forge.losses import SOFT
from mtplxd.forge.rollout import Floats, Ints
from mtplxd.forge.shards import TOP, Shard
from mtplxd.platform.mlx import Array, mx

AT_ONCE = 512
"""Positions whose logits over the whole vocabulary are held at a time."""
GROUP = 64
"""Logits of which only the largest is looked at first."""


def reread(
    target: Target,
    tokens: Ints,
    origin: npt.NDArray[np.uint8],
    breathe: Callable[[], None] = lambda: None,
) -> Shard:
    """Token ids [B, S] and who wrote them [B, S] to a shard. `breathe` is called now and then; what it raises ends
    the reading."""
    hidden, taps = target.run(mx.array(tokens), target.make_cache(len(tokens)))
    joined = mx.stack(taps, axis=2).astype(mx.float16)
    mx.eval(hidden, joined)
    flat = hidden.reshape(-1, hidden.shape[-1])
    parts = []
    for begin in range(0, len(flat), AT_ONCE):
        breathe()
        parts.append(_read_logits(target, flat[begin : begin + AT_ONCE]))
    ids, logprobs, sums = (
        np.concatenate(part).reshape(*tokens.shape, -1) for part in zip(*parts, strict=True)
    )
    kind = np.uint16 if target.vocab_size <= 1 << 16 else np.int32
    return Shard(
        tokens=tokens.astype(kind),
        origin=origin,
        taps=np.array(joined),
        top_ids=ids.astype(kind),
        top_logprobs=logprobs.astype(np.float16),
        logsumexp=sums,
    )


def _read_logits(target: Target, hidden: Array) -> tuple[Ints, Floats, Floats]:
    """Final hidden [N, H] to the ids and log-probabilities of the largest logits [N, K], and logsumexp [N, 2]."""
    logits = np.array(target.logits(hidden).astype(mx.float32))
    ids, largest = find_largest(logits, min(TOP, logits.shape[-1]))
    top = largest[:, :1]
    logits -= top
    sums = np.stack(
        [_log_total(logits, 1.0) + top[:, 0], _log_total(logits, SOFT) + top[:, 0] / SOFT], axis=-1
    )
    return ids, largest - sums[:, :1], sums


def _log_total(shifted: Floats, temperature: float) -> Floats:
    scaled = shifted / np.float32(temperature)
    total: Floats = np.log(np.exp(scaled, out=scaled).sum(axis=-1))
    return total


def find_largest(values: Floats, count: int) -> tuple[Ints, Floats]:
    """The places of the `count` largest of each row [N, V], descending, equal ones by place, and their values.

    None of them is outside the `count` groups with the largest maxima, so that only those are sorted out.
    """
    rows, size = values.shape
    missing = -size % GROUP
    padded = np.pad(values, ((0, 0), (0, missing)), constant_values=-np.inf) if missing else values
    grouped = padded.reshape(rows, -1, GROUP)
    maxima = grouped.max(axis=2)
    kept = min(count, maxima.shape[1])
    groups = np.argpartition(-maxima, kept - 1, axis=1)[:, :kept, None]
    found = np.take_along_axis(grouped, groups, axis=1).reshape(rows, -1)
    places = (groups * GROUP + np.arange(GROUP)).reshape(rows, -1)
    chosen = np.argpartition(-found, count - 1, axis=1)[:, :count]
    found, places = np.take_along_axis(found, chosen, axis=1), np.take_along_axis(places, chosen, axis=1)
    order = np.lexsort((places, -found), axis=-1)
    found, places = np.take_along_axis(found, order, axis=1), np.take_along_axis(places, order, axis=1)
    return places.astype(np.int32), found
