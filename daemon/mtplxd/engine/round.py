"""One round over a batch of rows: draft → verify → accept → commit. Plain decoding is a round at depth 0.

A round is launched (the whole graph is handed to MLX, nothing awaited) and landed (the one host synchronisation).
Between the two a round at depth 0 may launch its successor on the tokens not yet seen. What ends a text, and what a
user sees of it, is decided outside.

Rows of one round may differ in everything. None of what makes a row's tokens is another's: not its laws, its numbers,
how many drafts count, what is wrong with it.

Invariant between rounds: body slots = committed − 1, and slots of head layer j + pending and dropped pairs =
committed − 1 − j, where that is not below 0; a plain row has neither slots there nor pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mtplxd.engine.batch import Batch
from mtplxd.engine.drafting import draft, keep_pairs
from mtplxd.engine.events import GRAMMAR, NON_FINITE, TokenLogprob
from mtplxd.engine.exponential import add_up
from mtplxd.engine.fixed_shape import run_in_shape
from mtplxd.engine.judging import Drafts, Judgement, judge
from mtplxd.engine.logprobs import RoundLogprobs, measure_logprobs
from mtplxd.engine.masking import MaskWalk
from mtplxd.engine.row import Row
from mtplxd.engine.shaping import shape_logits
from mtplxd.engine.uniforms import UniformSource
from mtplxd.families.caches import without
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array, mx

HEAD_NON_FINITE, HEAD_FAILED, HEAD_COLLAPSED = "head_non_finite", "head_failed", "head_collapsed"


@dataclass(slots=True)
class Flight:
    """A launched round. Arrays are not evaluated; `begin` are the body's lengths before it, `head_begin` each head
    layer's, `absorbed` the pairs that went through the head since then.

    `logits` are the target's as the filter chain shapes them, [B, k+1, V]. The head raised for the rows `head_failed`,
    the grammar for those of `grammar_failed`. Row b of the batch stands at `places[b]` of the arrays: rows may leave
    while the round flies.
    """

    begin: list[int]
    head_begin: list[list[int]]
    absorbed: list[int]
    depth: int
    drafts: Drafts
    raw: Array
    logits: Array
    taps: Taps
    source: UniformSource
    judgement: Judgement
    finite: Array
    head_failed: set[int]
    grammar_failed: set[int]
    logprobs: RoundLogprobs | None
    places: list[int]

    @property
    def tokens(self) -> Array:
        """The last token of each row of the batch, [B], not evaluated."""
        found = self.judgement.token
        return found if len(self.places) == found.shape[0] else found[mx.array(self.places)]

    def leave(self, place: int) -> None:
        """A row has left the batch, and the last took its place; what the round makes of it is of no interest."""
        self.begin, self.absorbed = without(self.begin, place), without(self.absorbed, place)
        self.head_begin = [without(lengths, place) for lengths in self.head_begin]
        self.places = without(self.places, place)


@dataclass(slots=True)
class Landing:
    """What a round made of one row. `tokens` are the accepted drafts and the correction or bonus token.

    `broken` says why nothing of it may be kept: numbers of the target that are none, a grammar that failed. `fault`
    names what is wrong with the head, which costs no token. `logprobs` has an entry a token where the row asks for
    them.
    """

    tokens: list[int]
    drafted: int
    accepted: int
    redone: bool
    broken: str = ""
    fault: str = ""
    logprobs: tuple[TokenLogprob, ...] = field(default=())

    @property
    def finite(self) -> bool:
        """Whether the target gave numbers."""
        return self.broken != NON_FINITE

    def decided(self, kept: int) -> int:
        """Drafts that were decided before the text ended, `kept` of its tokens being kept."""
        return self.drafted if kept == len(self.tokens) else min(kept, self.drafted)


def launch(batch: Batch, source: UniformSource, lengths: Sequence[int], last: Array | None = None) -> Flight:
    """Starts a round that drafts up to `lengths[b]` tokens for row b.

    `last` [B] is the last committed token of each row where the host does not know it yet (a round at depth 0).
    """
    begin = _lengths(batch.cache)
    walk = MaskWalk(batch.rows, batch.target.vocab_size)
    drafting = draft(batch, source, lengths, walk)
    drafts = drafting.drafts
    depth = drafts.ids.shape[1]
    raw, taps = _verify(batch, last, drafts.ids)
    finite = _are_finite(raw, drafts.lengths)
    masks = _target_masks(walk, drafts, raw)
    unseen = drafts.ids if last is None else mx.concatenate([last[:, None], drafts.ids], axis=1)
    shapers = [row.shaper for row in batch.rows]
    logits = shape_logits(raw, shapers, unseen, ahead=0 if last is None else 1, masks=masks)
    judgement = judge(batch.rows, logits, drafts, source, full=False)
    logprobs = _measure(batch.rows, raw, drafts, judgement)
    mx.async_eval(*judgement[:3], finite, drafts.healthy, *(logprobs.arrays if logprobs else ()))
    return Flight(
        begin, drafting.begin, drafting.absorbed, depth, drafts, raw, logits, taps, source, judgement, finite,
        drafting.failed, walk.failed, logprobs, list(range(len(batch.rows))),
    )  # fmt: skip


def land(batch: Batch, flight: Flight) -> list[Landing]:
    """Waits for a round and reads what it made of each row; commits nothing."""
    sound, finite = flight.judgement.sound.tolist(), flight.finite.tolist()
    healthy, drafted = flight.drafts.healthy.tolist(), flight.drafts.lengths.tolist()
    ids = flight.drafts.ids.tolist()
    again = [b for b, at in enumerate(flight.places) if finite[at] and not sound[at]]
    whole = _Reading(flight.judgement, flight.logprobs)
    part = _judge_again(batch, flight, again) if again else whole
    landings = []
    for b, (row, at) in enumerate(zip(batch.rows, flight.places, strict=True)):
        accepted, token, logprobs = part.of(row, again.index(b)) if b in again else whole.of(row, at)
        broken = NON_FINITE if not finite[at] else GRAMMAR if at in flight.grammar_failed else ""
        # A head has no numbers to make numbers of where its target gives none.
        spoiled = finite[at] and not healthy[at]
        fault = HEAD_FAILED if at in flight.head_failed else HEAD_NON_FINITE if spoiled else ""
        tokens = [*ids[at][:accepted], token]
        landings.append(Landing(tokens, drafted[at], accepted, b in again, broken, fault, logprobs))
    return landings


def commit(
    batch: Batch, flight: Flight, landings: Sequence[Landing], keep: Sequence[int], ahead: int = 0
) -> None:
    """Commits the first `keep[b]` tokens of each row and rolls both caches back to what is committed.

    `ahead` is 1 where the successor of a depth-0 round is already in flight.
    """
    for row, landing, kept in zip(batch.rows, landings, keep, strict=True):
        row.commit(landing.tokens[:kept])
        row.counts.add(landing.drafted, landing.accepted, landing.decided(kept))
        if landing.fault:
            row.degrade(landing.fault)
        elif row.counts.collapsed:  # a depth that is chosen by what pays is 0 by itself then
            (row.tell if row.auto else row.degrade)(HEAD_COLLAPSED)
    for layer in batch.cache:
        layer.roll_back([begin + kept + ahead for begin, kept in zip(flight.begin, keep, strict=True)])
    _settle_head(batch, flight, landings, keep)


def discard(batch: Batch, flight: Flight) -> None:
    """Takes a launched round back as if it had never begun; pairs that a row caught up with stay absorbed."""
    for layer in batch.cache:
        layer.roll_back(flight.begin)
    for layer, lengths in zip(batch.head_cache, flight.head_begin, strict=True):
        layer.roll_back(lengths)


def take_back(batch: Batch) -> None:
    """Rolls all caches back to what the rows have committed, whatever was launched since; none of that has begun."""
    for layer in batch.cache:
        layer.roll_back([len(row.tokens) - 1 for row in batch.rows])
    keep_pairs(batch.head_cache, [row.absorbed for row in batch.rows])
    for row in batch.rows:
        row.round = row.counts.rounds


class _Reading:
    """What was judged, on the host."""

    def __init__(self, judgement: Judgement, logprobs: RoundLogprobs | None) -> None:
        self._accepted, self._token = judgement.accepted.tolist(), judgement.token.tolist()
        self._logprobs = logprobs

    def of(self, row: Row, at: int) -> tuple[int, int, tuple[TokenLogprob, ...]]:
        """Drafts accepted, the token after them, and what is told of these tokens, at a place of the arrays."""
        accepted, found = self._accepted[at], self._logprobs
        told = found.read(at, accepted + 1, row.logprobs) if found and row.logprobs is not None else ()
        return accepted, self._token[at], told


def _judge_again(batch: Batch, flight: Flight, again: Sequence[int]) -> _Reading:
    """Judges rows whose law reached beyond the candidates, those alone, by the whole vocabulary."""
    rows, places = [batch.rows[b] for b in again], [flight.places[b] for b in again]
    for row in rows:
        row.flat = True
    at, drafts = mx.array(places), flight.drafts.of(places)
    judgement = judge(rows, flight.logits[at], drafts, flight.source.of(places), full=True)
    return _Reading(judgement, _measure(rows, flight.raw[at], drafts, judgement))


def _lengths(cache: Sequence[LayerCache]) -> list[int]:
    return list(cache[0].lengths) if cache else []


def _are_finite(raw: Array, lengths: Array) -> Array:
    """Whether the logits [B, k+1, V] of each row's own positions are numbers, bool [B]; padding says nothing."""
    finite = mx.isfinite(add_up(raw)[..., 0])  # one number that is not finite makes the sum so
    if raw.shape[1] == 1:
        return mx.all(finite, axis=1)
    return mx.all(finite | (mx.arange(raw.shape[1]) > lengths[:, None]), axis=1)


def _verify(batch: Batch, last: Array | None, drafts: Array) -> tuple[Array, Taps]:
    """One forward of the body over each row's last token and its drafts: logits [B, k+1, V] and taps."""
    if last is None:
        last = mx.array([row.tokens[-1] for row in batch.rows], mx.int32)
    count = drafts.shape[1] + 1
    tokens = mx.concatenate([last[:, None], drafts], axis=1) if count > 1 else last[:, None]
    if batch.width is None:
        hidden, taps = batch.target.run(tokens, batch.cache)
        return batch.target.logits(hidden), taps
    hidden, taps = run_in_shape(batch.target, tokens, batch.cache, batch.width)
    return batch.target.logits(hidden)[:, :count], taps


def _target_masks(walk: MaskWalk, drafts: Drafts, raw: Array) -> Array | None:
    """The grammar masks [B, k+1, V] of all positions, made on the host while the verify forward runs."""
    if not walk.needed:
        return None
    mx.async_eval(raw)
    return mx.array(walk.finish(drafts.ids.tolist()))


def _measure(rows: Sequence[Row], raw: Array, drafts: Drafts, judgement: Judgement) -> RoundLogprobs | None:
    return measure_logprobs(raw, judgement, drafts.ids, [row.logprobs for row in rows])


def _settle_head(batch: Batch, flight: Flight, landings: Sequence[Landing], keep: Sequence[int]) -> None:
    """Drops the drafted head slots and queues the pairs that the committed tokens made true.

    Where that pushes older pairs out, the head's slots go too: its history never has a gap, it restarts.
    """
    if batch.head is None:
        return
    true = [begin + count for begin, count in zip(flight.head_begin[0], flight.absorbed, strict=True)]
    for b, (row, landing, kept) in enumerate(zip(batch.rows, landings, keep, strict=True)):
        if row.plain:
            true[b] = 0
            continue
        if flight.absorbed[b]:
            row.pending = None
        at = flight.places[b]
        if row.add_pending(landing.tokens[:kept], tuple(tap[at : at + 1, :kept] for tap in flight.taps)):
            row.dropped_pairs += true[b]
            true[b] = 0
    keep_pairs(batch.head_cache, true)
