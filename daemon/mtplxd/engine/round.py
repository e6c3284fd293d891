"""One round over a batch of rows: draft → verify → accept → commit. Plain decoding is a round at depth 0.

A round is launched (the whole graph is handed to MLX, nothing awaited) and landed (the one host synchronisation).
Between the two a round at depth 0 may launch its successor on the token not yet seen. What ends a text, and what a
user sees of it, is decided outside.

Invariant between rounds: body slots = committed − 1, and slots of head layer j + pending and dropped pairs =
committed − 1 − j, where that is not below 0.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from mtplxd.engine.batch import Batch
from mtplxd.engine.events import TokenLogprob
from mtplxd.engine.judging import Drafts, Judgement, draw_drafts, judge
from mtplxd.engine.logprobs import RoundLogprobs, measure_logprobs, widest
from mtplxd.engine.masking import MaskWalk, within_vocab
from mtplxd.engine.row import Pending, Row
from mtplxd.engine.shaping import shape_logits
from mtplxd.engine.uniforms import UniformSource
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array, mx

log = logging.getLogger(__name__)

HEAD_NON_FINITE, HEAD_FAILED, HEAD_COLLAPSED = "head_non_finite", "head_failed", "head_collapsed"


@dataclass(slots=True)
class Flight:
    """A launched round. Arrays are not evaluated; `begin` are the body's lengths before it, `head_begin` each head
    layer's.

    `logits` are the target's as the filter chain shapes them, [B, k+1, V]; `head_failed` where it raised.
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
    head_failed: bool
    logprobs: RoundLogprobs | None


@dataclass(slots=True)
class Landing:
    """What a round made of one row. `tokens` are the accepted drafts and the correction or bonus token.

    `fault` names what is wrong with the head; `logprobs` has an entry a token where the row asks for them.
    """

    tokens: list[int]
    drafted: int
    accepted: int
    finite: bool
    redone: bool
    fault: str = ""
    logprobs: tuple[TokenLogprob, ...] = field(default=())


def launch(batch: Batch, source: UniformSource, lengths: Sequence[int], last: Array | None = None) -> Flight:
    """Starts a round that drafts up to `lengths[b]` tokens for row b.

    `last` [B] is the last committed token of each row where the host does not know it yet (a round at depth 0).
    """
    begin, head_begin = _lengths(batch.cache), _all_lengths(batch.head_cache)
    absorbed = [len(row.pending.tokens) if row.pending else 0 for row in batch.rows]
    walk = MaskWalk(batch.rows, batch.target.vocab_size)
    drafts, failed = _draft(batch, source, lengths, walk)
    depth = drafts.ids.shape[1]
    raw, taps = _verify(batch, last, drafts.ids)
    finite = mx.isfinite(mx.sum(raw, axis=(1, 2)))  # one number that is not finite makes the sum so
    masks = _target_masks(walk, drafts, raw)
    unseen = drafts.ids if last is None else mx.concatenate([last[:, None], drafts.ids], axis=1)
    shapers = [row.shaper for row in batch.rows]
    logits = shape_logits(raw, shapers, unseen, ahead=0 if last is None else 1, masks=masks)
    judgement = judge(batch.rows, logits, drafts, source, full=False)
    logprobs = _measure(batch.rows, raw, drafts, judgement)
    mx.async_eval(*judgement[:3], finite, drafts.healthy, *(logprobs.arrays if logprobs else ()))
    if not depth:
        absorbed = [0] * len(batch.rows)
    return Flight(
        begin, head_begin, absorbed, depth, drafts, raw, logits, taps, source, judgement, finite, failed, logprobs
    )  # fmt: skip


def land(batch: Batch, flight: Flight) -> list[Landing]:
    """Waits for a round and reads what it made of each row; commits nothing."""
    sound = flight.judgement.sound.tolist()
    redone = not all(sound)
    if redone:
        for row, enough in zip(batch.rows, sound, strict=True):
            row.flat = row.flat or not enough
        flight.judgement = judge(batch.rows, flight.logits, flight.drafts, flight.source, full=True)
        flight.logprobs = _measure(batch.rows, flight.raw, flight.drafts, flight.judgement)
    accepted, token = flight.judgement.accepted.tolist(), flight.judgement.token.tolist()
    ids, lengths = flight.drafts.ids.tolist(), flight.drafts.lengths.tolist()
    finite, healthy = flight.finite.tolist(), flight.drafts.healthy.tolist()
    landings = []
    for b, row in enumerate(batch.rows):
        tokens = [*ids[b][: accepted[b]], token[b]]
        fault = HEAD_FAILED if flight.head_failed else "" if healthy[b] else HEAD_NON_FINITE
        logprobs = _read(flight.logprobs, b, row, len(tokens))
        landings.append(Landing(tokens, lengths[b], accepted[b], finite[b], redone, fault, logprobs))
    return landings


def commit(
    batch: Batch, flight: Flight, landings: Sequence[Landing], keep: Sequence[int], ahead: int = 0
) -> None:
    """Commits the first `keep[b]` tokens of each row and rolls both caches back to what is committed.

    `ahead` is 1 where the successor of a depth-0 round is already in flight.
    """
    for row, landing, kept in zip(batch.rows, landings, keep, strict=True):
        row.commit(landing.tokens[:kept])
        decided = landing.drafted if kept == len(landing.tokens) else min(kept, landing.drafted)
        row.counts.add(landing.drafted, landing.accepted, decided)
        if landing.fault:
            row.degrade(landing.fault)
        elif row.counts.collapsed:
            row.degrade(HEAD_COLLAPSED)
    for layer in batch.cache:
        layer.roll_back([begin + kept + ahead for begin, kept in zip(flight.begin, keep, strict=True)])
    _settle_head(batch, flight, landings, keep)


def discard(batch: Batch, flight: Flight) -> None:
    """Takes a launched round back as if it had never begun."""
    for layer in batch.cache:
        layer.roll_back(flight.begin)
    _restore(batch.head_cache, flight.head_begin)


def _lengths(cache: Sequence[LayerCache]) -> list[int]:
    return list(cache[0].lengths) if cache else []


def _all_lengths(cache: Sequence[LayerCache]) -> list[list[int]]:
    return [list(layer.lengths) for layer in cache]


def _restore(cache: Sequence[LayerCache], begin: Sequence[Sequence[int]]) -> None:
    for layer, lengths in zip(cache, begin, strict=True):
        layer.roll_back(lengths)


def _keep_pairs(head_cache: Sequence[LayerCache], pairs: Sequence[int]) -> None:
    """Keeps each row's first `pairs[b]` true pairs. A further layer holds one fewer: its tokens lie one further on."""
    for lag, layer in enumerate(head_cache):
        layer.roll_back([max(0, count - lag) for count in pairs])


def _verify(batch: Batch, last: Array | None, drafts: Array) -> tuple[Array, Taps]:
    """One forward of the body over each row's last token and its drafts: logits [B, k+1, V] and taps."""
    if last is None:
        last = mx.array([row.tokens[-1] for row in batch.rows], mx.int32)
    count = drafts.shape[1] + 1
    tokens = mx.concatenate([last[:, None], drafts], axis=1) if count > 1 else last[:, None]
    if batch.width is None:
        hidden, taps = batch.target.run(tokens, batch.cache)
        return batch.target.logits(hidden), taps
    begin = _lengths(batch.cache)
    hidden, taps = batch.target.run(mx.pad(tokens, [(0, 0), (0, batch.width - count)]), batch.cache)
    for layer in batch.cache:
        layer.roll_back([length + count for length in begin])
    return batch.target.logits(hidden)[:, :count], tuple(tap[:, :count] for tap in taps)


def _draft(
    batch: Batch, source: UniformSource, lengths: Sequence[int], walk: MaskWalk
) -> tuple[Drafts, bool]:
    """Absorbs the pending pairs, then drafts; True where the head raised and drafted nothing.

    Rows without pairs have nothing to draft from and draft nothing.
    """
    wanted = [length if row.pending else 0 for length, row in zip(lengths, batch.rows, strict=True)]
    if batch.head is None or max(wanted) == 0:
        return _no_drafts(batch.rows), False
    begin = _all_lengths(batch.head_cache)
    try:
        return _draft_steps(batch, source, wanted, walk), False
    except Exception:  # whatever is wrong with a head, its rows can still be decoded without it
        log.exception("the head failed while drafting")
        _restore(batch.head_cache, begin)
        walk.restart()
        return _no_drafts(batch.rows), True


def _no_drafts(rows: Sequence[Row]) -> Drafts:
    return Drafts(
        mx.array([[] for _ in rows], mx.int32),
        None,
        mx.array([0 for _ in rows], mx.int32),
        mx.array([True for _ in rows]),
    )


def _draft_steps(batch: Batch, source: UniformSource, wanted: Sequence[int], walk: MaskWalk) -> Drafts:
    """Drafts max(`wanted`) tokens a row; those before the first that came from numbers that are none count."""
    assert batch.head is not None
    head = batch.head
    ids: list[Array] = []
    laws: list[Array | None] = []
    healthy: list[Array] = []
    state = _absorb(batch)
    for step in range(max(wanted)):
        if step:
            state = head.extend(ids[-1][:, None], state, batch.head_cache)
        logits = head.logits(state)[:, 0]
        healthy.append(mx.isfinite(mx.sum(logits, axis=-1)))
        shaped = _shape_draft(batch, logits, ids, walk)
        chosen, law = draw_drafts(batch.rows, shaped, step, source, head.draft_vocab, batch.target.vocab_size)
        mx.async_eval(chosen)  # it runs while the next step's graph is built
        ids.append(chosen)
        laws.append(law)
        if walk.needed and batch.mask_drafts:
            walk.step(chosen.tolist())
    sane = mx.stack(healthy, axis=1)
    counted = mx.minimum(
        mx.array(wanted, mx.int32), mx.sum(mx.cumprod(sane.astype(mx.int32), axis=1), axis=1)
    )
    stacked = None if laws[0] is None else mx.stack(laws, axis=1)
    return Drafts(mx.stack(ids, axis=1), stacked, counted, mx.all(sane, axis=1))


def _shape_draft(batch: Batch, logits: Array, before: Sequence[Array], walk: MaskWalk) -> Array:
    """Head logits [B, D] through the chain's first half, after the drafts `before`."""
    vocab, masks = batch.vocab, None
    if walk.needed and batch.mask_drafts:
        mx.async_eval(logits)  # the head runs while the host makes its mask
        mask = walk.look()
        masks = mx.array(mask if vocab is None else within_vocab(mask, vocab.host_ids))[:, None]
    unseen = mx.stack(before, axis=1) if before else mx.zeros((len(batch.rows), 0), mx.int32)
    shapers = [row.shaper for row in batch.rows]
    return shape_logits(logits[:, None], shapers, unseen, len(before), masks, vocab)[:, 0]


def _target_masks(walk: MaskWalk, drafts: Drafts, raw: Array) -> Array | None:
    """The grammar masks [B, k+1, V] of all positions, made on the host while the verify forward runs."""
    if not walk.needed:
        return None
    mx.async_eval(raw)
    return mx.array(walk.finish(drafts.ids.tolist()))


def _measure(rows: Sequence[Row], raw: Array, drafts: Drafts, judgement: Judgement) -> RoundLogprobs | None:
    tops = widest([row.logprobs for row in rows])
    if tops is None:
        return None
    return measure_logprobs(raw, judgement.law, drafts.ids, judgement.accepted, judgement.token, tops)


def _read(found: RoundLogprobs | None, b: int, row: Row, count: int) -> tuple[TokenLogprob, ...]:
    return found.read(b, count, row.logprobs) if found and row.logprobs is not None else ()


def _absorb(batch: Batch) -> Array:
    """Runs every row's pending pairs through the head in one forward; gives each row's newest state, [B, 1, H]."""
    assert batch.head is not None
    pending = [row.pending for row in batch.rows]
    counts = [len(pairs.tokens) if pairs else 0 for pairs in pending]
    tokens, taps = _pad_pairs(pending, max(counts))
    before = _lengths(batch.head_cache)
    states = batch.head.absorb(tokens, taps, batch.head_cache)
    _keep_pairs(batch.head_cache, [begin + count for begin, count in zip(before, counts, strict=True)])
    if len(counts) == 1:
        return states[:, -1:]
    newest = mx.array([max(count - 1, 0) for count in counts])[:, None, None]
    return mx.take_along_axis(states, newest, axis=1)


def _pad_pairs(pending: Sequence[Pending | None], width: int) -> tuple[Array, Taps]:
    """Pairs of unequal count side by side; what pads a row is written past its length and never read."""
    tokens = [
        [*pairs.tokens, *[0] * (width - len(pairs.tokens))] if pairs else [0] * width for pairs in pending
    ]
    joined = [pairs.joined() if pairs else None for pairs in pending]
    like = next(row for row in joined if row is not None)
    taps = []
    for place, sample in enumerate(like):
        rows = [_pad_tap(sample[:, :0] if row is None else row[place], width) for row in joined]
        taps.append(rows[0] if len(rows) == 1 else mx.concatenate(rows, axis=0))
    return mx.array(tokens, mx.int32), tuple(taps)


def _pad_tap(tap: Array, width: int) -> Array:
    missing = width - tap.shape[1]
    return tap if missing == 0 else mx.pad(tap, [(0, 0), (0, missing), (0, 0)])


def _settle_head(batch: Batch, flight: Flight, landings: Sequence[Landing], keep: Sequence[int]) -> None:
    """Drops the drafted head slots and queues the pairs that the committed tokens made true.

    Where that pushes older pairs out, the head's slots go too: its history never has a gap, it restarts.
    """
    if batch.head is None:
        return
    true = [begin + count for begin, count in zip(flight.head_begin[0], flight.absorbed, strict=True)]
    for b, (row, landing, kept) in enumerate(zip(batch.rows, landings, keep, strict=True)):
        if row.plain:
            continue
        if flight.absorbed[b]:
            row.pending = None
        if row.add_pending(landing.tokens[:kept], tuple(tap[b : b + 1, :kept] for tap in flight.taps)):
            row.dropped_pairs += true[b]
            true[b] = 0
    _keep_pairs(batch.head_cache, true)
