"""The first half of the filter chain: grammar mask, logit bias, penalties. `sampling` makes a law of the result.

Order: mask → bias → repetition penalty (prompt and generated tokens) → presence and frequency penalties (generated
tokens only, as OpenAI's). Position i of a round has seen what is committed and the drafts before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mtplxd.engine.request import SamplerSettings
from mtplxd.platform.mlx import Array, mx


class Shaper:
    """One row's bias, penalties, and the counts these look at; V vocabulary."""

    def __init__(self, sampler: SamplerSettings, prompt: Sequence[int], size: int) -> None:
        self.sampler = sampler
        self._bias: Array | None = None
        if sampler.logit_bias:
            self._bias = _bias_vector(sampler.logit_bias, size)
        self.prompt_has = _counts(prompt, size) > 0
        self.generated = _counts((), size)

    def commit(self, tokens: Sequence[int]) -> None:
        """Counts tokens that became part of the text."""
        if tokens and self.sampler.penalised:
            self.generated = self.generated.at[mx.array(tokens, mx.int32)].add(1.0)

    def bias(self, dtype: Any) -> Array | None:
        """[V], None without one."""
        return None if self._bias is None else self._bias.astype(dtype)


def make_shaper(sampler: SamplerSettings, prompt: Sequence[int], size: int) -> Shaper | None:
    """None where the sampler asks for nothing of this."""
    return Shaper(sampler, prompt, size) if sampler.penalised or sampler.logit_bias else None


def shape_logits(
    logits: Array,
    shapers: Sequence[Shaper | None],
    unseen: Array,
    ahead: int = 0,
    masks: Array | None = None,
    vocab: Array | None = None,
) -> Array:
    """Logits [B, n, V] of n positions as their rows' settings shape them.

    `unseen` int32 [B, m] are tokens no shaper has counted yet; position i has seen the first `ahead` + i of them.
    `masks` bool [B, n, V] are the ids allowed. With `vocab` [D] the logits and masks are those of its ids, [B, n, D].
    """
    if masks is not None:
        logits = mx.where(masks, logits, mx.array(-mx.inf, logits.dtype))
    biases = [shaper.bias(logits.dtype) if shaper else None for shaper in shapers]
    if any(bias is not None for bias in biases):
        logits = logits + _stack(biases, vocab)[:, None]
    if any(shaper and shaper.sampler.penalised for shaper in shapers):
        logits = _penalise(logits, shapers, unseen, ahead, vocab)
    return logits


def _penalise(
    logits: Array, shapers: Sequence[Shaper | None], unseen: Array, ahead: int, vocab: Array | None
) -> Array:
    said = _stack([shaper.generated if shaper else None for shaper in shapers], None)[:, None]
    said = said + _count_before(unseen, ahead, logits.shape[1], said.shape[-1])
    heard = _stack([shaper.prompt_has if shaper else None for shaper in shapers], None)[:, None]
    if vocab is not None:
        said, heard = said[..., vocab], heard[..., vocab]
    repetition, presence, frequency = _factors(shapers, logits.dtype)
    repeated = mx.where(logits > 0, logits / repetition, logits * repetition)
    logits = mx.where(heard.astype(mx.bool_) | (said > 0), repeated, logits)
    return logits - presence * (said > 0) - frequency * said.astype(logits.dtype)


def _count_before(unseen: Array, ahead: int, positions: int, size: int) -> Array:
    """How often each id is among the first `ahead` + i of `unseen` [B, m], float32 [B, positions, V]."""
    rows, count = unseen.shape
    pairs = [(i, j) for i in range(positions) for j in range(min(ahead + i, count))]
    counts = mx.zeros((rows, positions, size), mx.float32)
    if not pairs:
        return counts
    places, sources = (mx.array(np.array(side, np.int32)) for side in zip(*pairs, strict=True))
    row = mx.arange(rows)[:, None]
    return counts.at[row, places[None], unseen[:, sources]].add(1.0)


def _factors(shapers: Sequence[Shaper | None], dtype: Any) -> tuple[Array, Array, Array]:
    """Repetition, presence and frequency penalties, each [B, 1, 1]; neutral where a row has none."""
    neutral = SamplerSettings()
    samplers = [shaper.sampler if shaper else neutral for shaper in shapers]
    columns = (
        [sampler.repetition_penalty for sampler in samplers],
        [sampler.presence_penalty for sampler in samplers],
        [sampler.frequency_penalty for sampler in samplers],
    )
    repetition, presence, frequency = (mx.array(column, dtype)[:, None, None] for column in columns)
    return repetition, presence, frequency


def _stack(vectors: Sequence[Array | None], vocab: Array | None) -> Array:
    """Rows' vectors [V] as [B, V] or [B, D]; zeros for a row without one."""
    like = next(vector for vector in vectors if vector is not None)
    stacked = mx.stack([mx.zeros_like(like) if vector is None else vector for vector in vectors])
    return stacked if vocab is None else stacked[:, vocab]


def _bias_vector(pairs: Sequence[tuple[int, float]], size: int) -> Array:
    ids, values = zip(*pairs, strict=True)
    return mx.zeros((size,), mx.float32).at[mx.array(ids, mx.int32)].add(mx.array(values, mx.float32))


def _counts(tokens: Sequence[int], size: int) -> Array:
    return mx.array(np.bincount(np.asarray(tokens, np.int64), minlength=size).astype(np.float32))
