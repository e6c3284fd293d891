"""The second half of the filter chain, for target and draft alike, and drawing from what it gives.

Order (transformers'): temperature → top-k → top-p → min-p → renormalise; ties break by lower id. Masks, bias and
penalties come before it (`shaping`), accepting is `acceptance`'s. Works in the dtype of its input: float32 in the
engine, float64 in proofs.

A law that is cut has mass on few ids: those are found, and nothing is made of the size of the vocabulary. Only the
share of top-p is one of everything. A law without a cut is over the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from mtplxd.engine.exponential import add_up, exponentials, sum_exponentials
from mtplxd.engine.ranking import Ranking, rank
from mtplxd.engine.request import SamplerSettings
from mtplxd.platform.mlx import Array, mx

CANDIDATES = 1024
"""How many of the largest logits are ranked. Ranking all of a vocabulary of 49k takes ten times as long."""
FEW_CANDIDATES = 256
"""Enough for most texts' laws; a row that once needed more is ranked by `CANDIDATES` from then on."""
TIES = 24
"""Ids ranked beyond top-k: where more than so many tie for its last place, the whole vocabulary is ranked."""
LEAST_TOP_P = 1e-30
"""The likeliest id alone is kept from far above it on; what is nearer to 0 would be 0 in float32 and keep none."""
CERTAIN = SamplerSettings(top_k=1)
"""Greedy as a law: the likeliest id, for certain."""


@dataclass(frozen=True, slots=True)
class Law:
    """Next-token laws [...] over c places each. A place weighs `weights` [..., c], in proportion to its mass.

    `ids` int32 [..., c] ascend; None where place and id are one. `sound` [...] is False where the candidates may have
    cut the law short. The weights that are not 0 are the same however many candidates were ranked.
    """

    weights: Array
    ids: Array | None
    sound: Array

    @property
    def p(self) -> Array:
        """Masses of the places [..., c], which add up to 1."""
        return self.weights / add_up(self.weights)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weights."""
        return tuple(self.weights.shape)

    @property
    def dtype(self) -> Any:
        """Of the weights."""
        return self.weights.dtype

    def mass_at(self, tokens: Array) -> Array:
        """The mass of one id in each law: tokens [...] give [...]."""
        return mass_at(self.weights, self.ids, tokens) / add_up(self.weights)[..., 0]

    def pick(self, index: Any) -> Law:
        """Some of the laws, as arrays are indexed."""
        return Law(self.weights[index], None if self.ids is None else self.ids[index], self.sound[index])


def is_cut(sampler: SamplerSettings) -> bool:
    """Whether its laws leave ids out."""
    return sampler.greedy or sampler.top_k > 0 or sampler.top_p < 1.0 or sampler.min_p > 0.0


def filter_logits(
    logits: Array, sampler: SamplerSettings, *, full: bool = False, limit: int | None = None
) -> Law:
    """The law of one `sampler` over logits [..., V]; as `filter_rows` otherwise."""
    return filter_rows(logits[None], [sampler], full=full, limit=limit).pick(0)


def filter_rows(
    logits: Array,
    samplers: Sequence[SamplerSettings],
    *,
    full: bool = False,
    limit: int | None = None,
    closed: bool = False,
) -> Law:
    """The laws of B rows with samplers of their own, all of which cut or none; logits [B, ..., V].

    Greedy rows get their likeliest id for certain. `full` ranks the whole vocabulary; with `limit` at most so many ids
    are ranked and keep mass. `closed` takes the candidates for everything there is.
    """
    samplers = [CERTAIN if sampler.greedy else sampler for sampler in samplers]
    temperature = _column([sampler.temperature for sampler in samplers], logits)
    if not is_cut(samplers[0]):
        weights = exponentials(logits, mx.max(logits, axis=-1, keepdims=True), temperature)
        return Law(weights, None, mx.ones(logits.shape[:-1], mx.bool_))
    ranking = rank(logits, _count_candidates(samplers, logits.shape[-1], full, limit, closed))
    largest = ranking.values[..., :1]
    weights = mx.exp((ranking.values - largest) / temperature)
    keep = weights > 0  # what is masked is no candidate, however few there are
    if any(sampler.top_p < 1.0 for sampler in samplers):
        before = mx.cumsum(weights, axis=-1, inclusive=False)
        total = _total(logits, largest, temperature, samplers, before, weights, closed)
        keep = keep & (before < _shares(samplers, logits) * total)
    if any(sampler.top_k for sampler in samplers):
        most = _column([sampler.top_k or logits.shape[-1] for sampler in samplers], logits, mx.int32)
        keep = keep & (mx.arange(weights.shape[-1]) < most)
    if any(sampler.min_p for sampler in samplers):
        keep = keep & (weights >= _column([sampler.min_p for sampler in samplers], logits))
    kept = mx.where(keep, weights, mx.zeros_like(weights))
    placed = mx.put_along_axis(mx.zeros_like(kept), ranking.order, kept, axis=-1)
    return Law(placed, None if full else ranking.ids, _is_sound(ranking, keep))


def draw(law: Law, uniforms: Array) -> Array:
    """Ids int32 [B] drawn from B laws by inverting the sums of their weights, in the order of the ids, at uniforms."""
    sums = mx.cumsum(law.weights, axis=-1)
    total = sums[..., -1:]
    places = mx.sum(sums <= uniforms[..., None] * total, axis=-1)
    # Rounding may carry the product to the total itself: stay on the last id that has mass.
    places = mx.minimum(places, mx.sum(sums < total, axis=-1)).astype(mx.int32)
    return places if law.ids is None else mx.take_along_axis(law.ids, places[..., None], axis=-1)[..., 0]


def mass_at(masses: Array, ids: Array | None, tokens: Array) -> Array:
    """What laws over places have at tokens [...]: masses [..., c] and their ids, as a `Law` has them; gives [...]."""
    if ids is None:
        return mx.take_along_axis(masses, tokens[..., None], axis=-1)[..., 0]
    return mx.sum(mx.where(ids == tokens[..., None], masses, mx.zeros_like(masses)), axis=-1)


def scatter(masses: Array, ids: Array | None, size: int) -> Array:
    """Laws over places [..., c] as laws over all ids [..., size]: zero elsewhere. `ids` are [..., c] or [c]."""
    if ids is None:
        return masses
    ids = mx.broadcast_to(ids, masses.shape)
    return mx.put_along_axis(mx.zeros((*masses.shape[:-1], size), masses.dtype), ids, masses, axis=-1)


def _count_candidates(
    samplers: Sequence[SamplerSettings], size: int, full: bool, limit: int | None, closed: bool
) -> int:
    """No limit cuts a top-k that top-p takes its share of."""
    if full:
        return size
    most = max(sampler.top_k + TIES if sampler.top_k else CANDIDATES for sampler in samplers)
    shared = [sampler.top_k + TIES for sampler in samplers if sampler.top_k and sampler.top_p < 1.0]
    return min(size, most, max(limit or size, 0 if closed else max(shared, default=0)))


def _total(
    logits: Array,
    largest: Array,
    temperature: float | Array,
    samplers: Sequence[SamplerSettings],
    before: Array,
    weights: Array,
    closed: bool,
) -> Array:
    """What top-p takes its share of, [B, ..., 1]: of a row's top-k where it is on, else of the whole vocabulary."""
    count = weights.shape[-1]
    whole = [b for b, sampler in enumerate(samplers) if sampler.top_p < 1.0 and not sampler.top_k]
    if len(whole) == len(samplers) and not closed:
        return sum_exponentials(logits, largest, temperature)
    last = [min(sampler.top_k or count, count) - 1 for sampler in samplers]
    if min(last) == max(last):
        total = before[..., last[0] : last[0] + 1] + weights[..., last[0] : last[0] + 1]
    else:
        places = mx.broadcast_to(_column(last, logits, mx.int32), (*weights.shape[:-1], 1))
        total = mx.take_along_axis(before + weights, places, axis=-1)
    if closed or not whole:
        return total
    at = mx.array(whole)
    heat = temperature[at] if isinstance(temperature, Array) else temperature
    places = [len(samplers) + whole.index(b) if b in whole else b for b in range(len(samplers))]
    return mx.concatenate([total, sum_exponentials(logits[at], largest[at], heat)])[mx.array(places)]


def _shares(samplers: Sequence[SamplerSettings], like: Array) -> float | Array:
    shares = [max(sampler.top_p, LEAST_TOP_P) if sampler.top_p < 1.0 else inf for sampler in samplers]
    return _column(shares, like)


def _is_sound(ranking: Ranking, keep: Array) -> Array:
    """Whether the cut lies strictly inside the candidates, so that no id outside could have been kept."""
    if ranking.all:
        return mx.ones(keep.shape[:-1], mx.bool_)
    return ~mx.any(keep & (ranking.values <= ranking.values[..., -1:]), axis=-1)


def _column(values: Sequence[float], like: Array, dtype: Any = None) -> float | Array:
    """A setting of each row, to be combined with arrays like [B, ..., V]; a plain number where it is one for all."""
    if min(values) == max(values):
        return values[0]
    return mx.array(list(values), dtype or like.dtype).reshape(-1, *([1] * (like.ndim - 1)))
