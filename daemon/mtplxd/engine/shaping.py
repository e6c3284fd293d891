"""The first half of the filter chain: grammar mask, logit bias, penalties. `sampling` makes a law of the result.

Order: mask → bias → repetition penalty (prompt and generated tokens) → presence and frequency penalties (generated
tokens only, as OpenAI's). Position i of a round has seen what is committed and the drafts before it.

Bias and penalties change the logits of few ids of a large vocabulary: those are taken out, changed and put back, first
by what the host knows, which is the same at every position, then the drafts by how often a position has seen them. An
id that stands in several columns gets one and the same value in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mtplxd.engine.draft_vocab import DraftVocab
from mtplxd.engine.request import SamplerSettings
from mtplxd.platform.mlx import Array, mx


class Columns(NamedTuple):
    """Ids [u] that a row's logits change at, and how: `bias` is added, then what is above 0 is divided by `factor` and
    what is not multiplied, then `offset` is taken off. `said` is how often an id was generated."""

    ids: np.ndarray
    bias: np.ndarray
    factor: np.ndarray
    offset: np.ndarray
    said: np.ndarray


class Shaper:
    """One row's bias and penalties, and what its text has said so far."""

    def __init__(self, sampler: SamplerSettings, prompt: Sequence[int]) -> None:
        self.sampler = sampler
        self._places: dict[int, int] = {}
        self._heard: list[bool] = []
        self._said: list[int] = []
        self._columns: dict[bool, Columns] = {}
        if sampler.penalised:
            for token in prompt:
                self._heard[self._place_of(token)] = True

    def commit(self, tokens: Sequence[int]) -> None:
        """Counts tokens that became part of the text."""
        if self.sampler.penalised:
            self._columns.clear()
            for token in tokens:
                self._said[self._place_of(token)] += 1

    def history(self) -> np.ndarray:
        """What occurred, int32 [3, u]: ids, whether the prompt has them, how often they were generated."""
        return np.array([list(self._places), self._heard, self._said], np.int32)

    def columns(self, vocab: DraftVocab | None) -> Columns:
        """What changes by what is committed; over a draft vocabulary `ids` are places in it."""
        reduced = vocab is not None
        if reduced not in self._columns:
            found = self._make_columns()
            if vocab is not None:
                places = vocab.host_index[found.ids]
                found = Columns(places, *found[1:])
                found = Columns(*(part[places >= 0] for part in found))
            self._columns[reduced] = found
        return self._columns[reduced]

    def _make_columns(self) -> Columns:
        sampler, biases = self.sampler, dict[int, float]()
        for token, value in sampler.logit_bias:
            biases[token] = biases.get(token, 0.0) + value
        ids = [*self._places, *(token for token in biases if token not in self._places)]
        said = np.zeros(len(ids))
        said[: len(self._said)] = self._said
        occurred = np.arange(len(ids)) < len(self._places)
        return Columns(
            np.array(ids, np.int32),
            np.array([biases.get(token, 0.0) for token in ids]),
            np.where(occurred, sampler.repetition_penalty, 1.0),
            sampler.presence_penalty * (said > 0) + sampler.frequency_penalty * said,
            said,
        )

    def _place_of(self, token: int) -> int:
        if token not in self._places:
            self._places[token] = len(self._places)
            self._heard.append(False)
            self._said.append(0)
        return self._places[token]


_NEUTRAL = Columns(np.zeros(1, np.int32), np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1))
"""Of a row without any: some id's logit stays what it is."""


def make_shaper(sampler: SamplerSettings, prompt: Sequence[int]) -> Shaper | None:
    """None where the sampler asks for nothing of this."""
    return Shaper(sampler, prompt) if sampler.penalised or sampler.logit_bias else None


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
    return _penalise(logits, shapers, unseen, ahead, vocab) if any(shapers) else logits


def _penalise(
    logits: Array, shapers: Sequence[Shaper | None], unseen: Array, ahead: int, vocab: DraftVocab | None
) -> Array:
    """Bias and penalties, of what is committed and of what position by position is not."""
    own = [shaper.columns(vocab) if shaper else _NEUTRAL for shaper in shapers]
    own = [columns if len(columns.ids) else _NEUTRAL for columns in own]
    ids = mx.array(_beside([columns.ids for columns in own]))
    bias, factor, offset = (
        mx.array(_beside([columns[part] for columns in own]), logits.dtype)[:, None] for part in (1, 2, 3)
    )
    places = _at_each(ids, logits)
    changed = _change(mx.take_along_axis(logits, places, axis=-1), bias, factor) - offset
    shaped = mx.put_along_axis(logits, places, changed, axis=-1)
    if not unseen.shape[1] or not any(shaper and shaper.sampler.penalised for shaper in shapers):
        return shaped
    unseen = unseen if vocab is None else vocab.index[unseen]
    return _penalise_unseen(logits, shaped, shapers, own, ids, unseen, ahead)


def _penalise_unseen(
    logits: Array,
    shaped: Array,
    shapers: Sequence[Shaper | None],
    own: Sequence[Columns],
    ids: Array,
    unseen: Array,
    ahead: int,
) -> Array:
    """Adds to `shaped` what tokens do that only some positions have seen; they may have occurred before, or never."""
    known = (ids[:, None] == unseen[:, :, None]).astype(logits.dtype)
    tables = np.stack([_beside([columns[part] for columns in own], repeat=False) for part in (1, 4)])
    bias, said = mx.sum(known * mx.array(tables, logits.dtype)[:, :, None], axis=-1)[:, :, None]
    repetition, presence, frequency = _penalties(shapers, logits.dtype)
    count = _count_before(unseen, ahead, logits)
    places = _at_each(unseen, logits)
    again = _change(mx.take_along_axis(logits, places, axis=-1), bias, repetition)
    again = again - presence - frequency * (said + count)
    kept = mx.take_along_axis(shaped, places, axis=-1)
    return mx.put_along_axis(shaped, places, mx.where(count > 0, again, kept), axis=-1)


def _change(values: Array, bias: Array, factor: Array) -> Array:
    values = values + bias
    return mx.where(values > 0, values / factor, values * factor)


def _at_each(ids: Array, logits: Array) -> Array:
    """Ids [B, c] for each position of logits [B, n, V]."""
    return mx.broadcast_to(ids[:, None], (*logits.shape[:2], ids.shape[1]))


def _count_before(unseen: Array, ahead: int, logits: Array) -> Array:
    """How often each of `unseen` [B, m] is among the first `ahead` + i of them, [B, n, m]."""
    count = unseen.shape[1]
    before = mx.array(np.arange(count) < np.arange(logits.shape[1])[:, None] + ahead)
    equal = unseen[:, None, :, None] == unseen[:, None, None]
    return mx.sum((equal & before[:, None]).astype(logits.dtype), axis=-1)


def _penalties(shapers: Sequence[Shaper | None], dtype: Any) -> tuple[Array, Array, Array]:
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


def _beside(columns: Sequence[np.ndarray], *, repeat: bool = True) -> np.ndarray:
    """Rows' columns as [B, u], the shorter ones with their last repeated, or with zeros."""
    joined = np.zeros((len(columns), max(map(len, columns))), columns[0].dtype)
    for row, column in zip(joined, columns, strict=True):
        row[: len(column)] = column
        if repeat:
            row[len(column) :] = column[-1]
    return joined
