"""The first half of the filter chain: grammar mask, logit bias, penalties. `sampling` makes a law of the result.

Order: mask → bias → repetition penalty (prompt and generated tokens) → presence and frequency penalties (generated
tokens only, as OpenAI's). Position i of a round has seen what is committed and the drafts before it.

Penalties change the logits of ids that occurred, a few hundred of a large vocabulary: those are taken out, changed and
put back. An id that stands in several columns gets one and the same value in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mtplxd.engine.draft_vocab import DraftVocab
from mtplxd.engine.request import SamplerSettings
from mtplxd.platform.mlx import Array, mx


class Shaper:
    """One row's bias and penalties, and what its text has said so far; V vocabulary."""

    def __init__(self, sampler: SamplerSettings, prompt: Sequence[int], size: int) -> None:
        self.sampler = sampler
        self._bias = _bias_vector(sampler.logit_bias, size) if sampler.logit_bias else None
        self._draft_bias: Array | None = None
        self._places: dict[int, int] = {}
        self._heard: list[bool] = []
        self._said: list[int] = []
        self._history: np.ndarray | None = None
        if sampler.penalised:
            for token in prompt:
                self._heard[self._place_of(token)] = True

    def commit(self, tokens: Sequence[int]) -> None:
        """Counts tokens that became part of the text."""
        if self.sampler.penalised:
            self._history = None
            for token in tokens:
                self._said[self._place_of(token)] += 1

    def bias(self, dtype: Any, vocab: DraftVocab | None) -> Array | None:
        """[V] or, over a draft vocabulary, [D]; None without one."""
        if self._bias is None or vocab is None:
            return None if self._bias is None else self._bias.astype(dtype)
        if self._draft_bias is None:
            self._draft_bias = self._bias[vocab.ids]
        return self._draft_bias.astype(dtype)

    def history(self) -> np.ndarray:
        """What occurred, int32 [3, u]: ids, whether the prompt has them, how often they were generated."""
        if self._history is None:
            self._history = np.array([list(self._places), self._heard, self._said], np.int32)
        return self._history

    def _place_of(self, token: int) -> int:
        if token not in self._places:
            self._places[token] = len(self._places)
            self._heard.append(False)
            self._said.append(0)
        return self._places[token]


def make_shaper(sampler: SamplerSettings, prompt: Sequence[int], size: int) -> Shaper | None:
    """None where the sampler asks for nothing of this."""
    return Shaper(sampler, prompt, size) if sampler.penalised or sampler.logit_bias else None


def shape_logits(
    logits: Array,
    shapers: Sequence[Shaper | None],
    unseen: Array,
    ahead: int = 0,
    masks: Array | None = None,
    vocab: DraftVocab | None = None,
) -> Array:
    """Logits [B, n, V] of n positions as their rows' settings shape them.

    `unseen` int32 [B, m] are tokens no shaper has counted yet; position i has seen the first `ahead` + i of them.
    `masks` bool [B, n, V] are the ids allowed. With `vocab` logits and masks are those of its ids, [B, n, D].
    """
    if masks is not None:
        logits = mx.where(masks, logits, mx.array(-mx.inf, logits.dtype))
    biases = [shaper.bias(logits.dtype, vocab) if shaper else None for shaper in shapers]
    if any(bias is not None for bias in biases):
        logits = logits + _stack(biases)[:, None]
    if any(shaper and shaper.sampler.penalised for shaper in shapers):
        logits = _penalise(logits, shapers, unseen, ahead, vocab)
    return logits


def _penalise(
    logits: Array, shapers: Sequence[Shaper | None], unseen: Array, ahead: int, vocab: DraftVocab | None
) -> Array:
    history = _histories(shapers, vocab)
    ids, heard, said = history[:, 0], history[:, 1], history[:, 2]
    if unseen.shape[1]:
        # A draft has a column of its own: it may have occurred before, or never.
        known = (ids[:, :, None] == unseen[:, None]).astype(mx.int32)
        heard = mx.concatenate([heard, mx.max(heard[:, :, None] * known, axis=1)], axis=1)
        said = mx.concatenate([said, mx.max(said[:, :, None] * known, axis=1)], axis=1)
        ids = mx.concatenate([ids, unseen], axis=1)
    counts = said[:, None] + _count_before(ids, unseen, ahead, logits.shape[1])
    places = mx.broadcast_to((ids if vocab is None else vocab.index[ids])[:, None], counts.shape)
    changed = _apply(mx.take_along_axis(logits, places, axis=-1), heard[:, None] > 0, counts, shapers)
    return mx.put_along_axis(logits, places, changed, axis=-1)


def _apply(values: Array, heard: Array, said: Array, shapers: Sequence[Shaper | None]) -> Array:
    """Penalised logits [B, n, c] of ids that the prompt has or not, generated so many times."""
    repetition, presence, frequency = _factors(shapers, values.dtype)
    repeated = mx.where(values > 0, values / repetition, values * repetition)
    values = mx.where(heard | (said > 0), repeated, values)
    return values - presence * (said > 0) - frequency * said.astype(values.dtype)


def _histories(shapers: Sequence[Shaper | None], vocab: DraftVocab | None) -> Array:
    """Histories int32 [B, 3, u]; shorter ones repeat a column, a row without any has an id that never occurred."""
    found = [
        shaper.history() if shaper and shaper.sampler.penalised else np.zeros((3, 0), np.int32)
        for shaper in shapers
    ]
    if vocab is not None:
        found = [history[:, vocab.host_index[history[0]] >= 0] for history in found]
    none = np.array([[0 if vocab is None else vocab.host_ids[0]], [0], [0]], np.int32)
    found = [history if history.shape[1] else none for history in found]
    width = max(history.shape[1] for history in found)
    return mx.array(np.stack([np.pad(h, ((0, 0), (0, width - h.shape[1])), "edge") for h in found]))


def _count_before(ids: Array, unseen: Array, ahead: int, positions: int) -> Array:
    """How often each of `ids` [B, c] is among the first `ahead` + i of `unseen` [B, m], int32 [B, positions, c]."""
    count = unseen.shape[1]
    if count == 0:
        return mx.zeros((ids.shape[0], positions, ids.shape[1]), mx.int32)
    before = mx.arange(count)[None] < (mx.arange(positions) + ahead)[:, None]
    equal = unseen[:, :, None] == ids[:, None]
    return mx.sum((before[None, :, :, None] & equal[:, None]).astype(mx.int32), axis=2)


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


def _stack(vectors: Sequence[Array | None]) -> Array:
    """Rows' vectors as [B, …]; zeros for a row without one."""
    like = next(vector for vector in vectors if vector is not None)
    return mx.stack([mx.zeros_like(like) if vector is None else vector for vector in vectors])


def _bias_vector(pairs: Sequence[tuple[int, float]], size: int) -> Array:
    ids, values = zip(*pairs, strict=True)
    return mx.zeros((size,), mx.float32).at[mx.array(ids, mx.int32)].add(mx.array(values, mx.float32))
