"""The second half of the filter chain, for target and draft alike, and drawing from what it gives.

Order (transformers'): temperature → top-k → top-p → min-p → renormalise; ties break by lower id. Masks, bias and
penalties come before it (`shaping`), accepting is `acceptance`'s. Works in the dtype of its input: float32 in the
engine, float64 in proofs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mtplxd.engine.exponential import sum_exponentials
from mtplxd.engine.request import SamplerSettings
from mtplxd.platform.mlx import Array, mx

CANDIDATES = 1024
"""How many of the largest logits are ranked. Ranking all of a vocabulary of 49k takes ten times as long."""
FEW_CANDIDATES = 256
"""Enough for most texts' laws; a row that once needed more is ranked by `CANDIDATES` from then on."""
DRAFT_CANDIDATES = 128
"""As many for a draft: its law may leave out what it likes, for it is the one the draft is drawn from."""
TIES = 24
"""Ids ranked beyond top-k: where more than so many tie for its last place, the whole vocabulary is ranked."""
LEAST_TOP_P = 1e-30
"""The likeliest id alone is kept from far above it on; what is nearer to 0 would be 0 in float32 and keep none."""
STRIPS = 8
"""Rows that a large vocabulary is laid out in to find the candidates."""


class Law(NamedTuple):
    """A next-token distribution [..., V]. `sound` [...] is False where the candidates may have cut it short."""

    p: Array
    sound: Array


def filter_logits(
    logits: Array, sampler: SamplerSettings, *, full: bool = False, limit: int | None = None
) -> Law:
    """The law of `sampler` over logits [..., V]; temperature must be above 0. `full` ranks the whole vocabulary.

    With `limit` at most so many ids are ranked, and keep mass.
    """
    scaled = logits / sampler.temperature
    if sampler.top_k == 0 and sampler.top_p >= 1.0:
        law = Law(mx.softmax(scaled, axis=-1, precise=True), mx.ones(scaled.shape[:-1], mx.bool_))
    else:
        law = _rank_and_cut(scaled, sampler, full, limit)
    return law if sampler.min_p == 0.0 else Law(_cut_min_p(law.p, sampler.min_p), law.sound)


def filter_rows(
    logits: Array, samplers: Sequence[SamplerSettings], *, full: bool = False, limit: int | None = None
) -> Law:
    """The laws of B rows with samplers of their own; logits [B, ..., V]. Greedy rows get their argmax for certain."""
    if all(_same_filters(sampler, samplers[0]) for sampler in samplers):
        return _filter_row(logits, samplers[0], full, limit)
    laws = [_filter_row(logits[b : b + 1], sampler, full, limit) for b, sampler in enumerate(samplers)]
    return Law(mx.concatenate([law.p for law in laws]), mx.concatenate([law.sound for law in laws]))


def draw(law: Array, uniforms: Array) -> Array:
    """Ids [B] drawn from laws [B, V] (not necessarily normalised) by inverting their sums at uniforms [B]."""
    sums = mx.cumsum(law, axis=-1)
    total = sums[..., -1:]
    ids = mx.sum(sums <= uniforms[..., None] * total, axis=-1)
    # Rounding may carry the product to the total itself: stay on the last id that has mass.
    return mx.minimum(ids, mx.sum(sums < total, axis=-1)).astype(mx.int32)


def largest_in_order(values: Array, count: int) -> tuple[Array, Array]:
    """Ids and values [..., count] of the largest of [..., V], descending, equal ones by ascending id."""
    ids, found, _ = _rank(values, min(count, values.shape[-1]))
    return ids, found


def scatter_vocab(law: Array, vocab: Array | None, size: int) -> Array:
    """A law over a reduced vocabulary [..., D] as one over all ids [..., V]: zero elsewhere."""
    if vocab is None:
        return law
    ids = mx.broadcast_to(vocab, law.shape)
    return mx.put_along_axis(mx.zeros((*law.shape[:-1], size), law.dtype), ids, law, axis=-1)


def _filter_row(logits: Array, sampler: SamplerSettings, full: bool, limit: int | None) -> Law:
    if not sampler.greedy:
        return filter_logits(logits, sampler, full=full, limit=limit)
    best = mx.argmax(logits, axis=-1, keepdims=True)
    one = mx.put_along_axis(mx.zeros_like(logits), best, mx.array(1, logits.dtype), axis=-1)
    return Law(one, mx.ones(logits.shape[:-1], mx.bool_))


def _same_filters(a: SamplerSettings, b: SamplerSettings) -> bool:
    return (a.temperature, a.top_p, a.top_k, a.min_p) == (b.temperature, b.top_p, b.top_k, b.min_p)


def _rank_and_cut(scaled: Array, sampler: SamplerSettings, full: bool, limit: int | None) -> Law:
    size = scaled.shape[-1]
    ranked = size if full else sampler.top_k + TIES if sampler.top_k else CANDIDATES
    count = min(size, ranked, limit or size)
    ids, values, floor = _rank(scaled, count)
    probs = _ranked_probs(scaled, values, sampler.top_k)
    before = mx.cumsum(probs, axis=-1) - probs
    top_p = max(sampler.top_p, LEAST_TOP_P)
    keep = before < top_p if top_p < 1.0 else mx.ones(probs.shape, mx.bool_)
    if sampler.top_k:
        keep = keep & (mx.arange(count) < sampler.top_k)
    keep = keep & (values > -mx.inf)  # what is masked is no candidate, however few there are
    kept = mx.where(keep, probs, mx.zeros_like(probs))
    kept = kept / mx.sum(kept, axis=-1, keepdims=True)
    p = mx.put_along_axis(mx.zeros_like(scaled), ids, kept, axis=-1)
    return Law(p, _is_sound(values, keep, floor))


def _rank(scaled: Array, count: int) -> tuple[Array, Array, Array | None]:
    """Ids and values of the `count` largest, descending, equal ones by ascending id (the sorts are stable).

    No id outside them has a value above the floor [..., 1], their least; None where there is no id outside.
    """
    size = scaled.shape[-1]
    if count == size:
        ids = mx.argsort(-scaled, axis=-1)
        return ids, mx.take_along_axis(scaled, ids, axis=-1), None
    if size % STRIPS == 0 and size >= 4 * STRIPS * count:
        ids = _pick_columns(scaled, count)
        largest = _largest(mx.take_along_axis(scaled, ids, axis=-1), count)
        ids = mx.take_along_axis(ids, largest, axis=-1)
    else:
        ids = _largest(scaled, count)
    ids = mx.sort(ids, axis=-1)
    values = mx.take_along_axis(scaled, ids, axis=-1)
    order = mx.argsort(-values, axis=-1)
    ids, values = mx.take_along_axis(ids, order, axis=-1), mx.take_along_axis(values, order, axis=-1)
    return ids, values, values[..., -1:]


def _pick_columns(scaled: Array, count: int) -> Array:
    """Looks for candidates in a vocabulary laid out as STRIPS rows: ids of the `count` columns with the largest heads.

    A partition of the columns' maxima is several times cheaper than one of all values. The `count` heads alone are at
    least as large as anything in other columns: the largest of the ids [..., STRIPS · count] are the largest of all.
    """
    columns = scaled.shape[-1] // STRIPS
    heads = mx.max(mx.unflatten(scaled, -1, (STRIPS, columns)), axis=-2)
    chosen = _largest(heads, count)
    begins = mx.arange(0, STRIPS * columns, columns, dtype=chosen.dtype)[:, None]
    return mx.flatten(chosen[..., None, :] + begins, -2, -1)


def _largest(values: Array, count: int) -> Array:
    """Places of the `count` largest, in no order."""
    return mx.argpartition(-values, kth=count - 1, axis=-1)[..., :count]


def _ranked_probs(scaled: Array, values: Array, top_k: int) -> Array:
    """Probabilities of the ranked ids: of the top-k alone where it is on, else of the whole vocabulary."""
    if top_k:
        values = mx.where(mx.arange(values.shape[-1]) < top_k, values, -mx.inf)
        return mx.softmax(values, axis=-1, precise=True)
    largest = values[..., :1]
    return mx.exp(values - largest) / sum_exponentials(scaled, largest)


def _is_sound(values: Array, keep: Array, floor: Array | None) -> Array:
    """Whether the cut lies strictly inside the candidates, so that no id outside could have been kept."""
    if floor is None:
        return mx.ones(values.shape[:-1], mx.bool_)
    last = mx.maximum(mx.sum(keep, axis=-1, keepdims=True) - 1, 0)
    return mx.squeeze(mx.take_along_axis(values, last, axis=-1) > floor, -1)


def _cut_min_p(p: Array, min_p: float) -> Array:
    kept = mx.where(p >= min_p * mx.max(p, axis=-1, keepdims=True), p, mx.zeros_like(p))
    return kept / mx.sum(kept, axis=-1, keepdims=True)
