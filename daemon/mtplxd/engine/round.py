"""One round over a batch of rows: draft → verify → accept → commit. Plain decoding is a round at depth 0.

A round is launched (the whole graph is handed to MLX, nothing awaited) and landed (the one host synchronisation).
Between the two a round at depth 0 may launch its successor on the token not yet seen. What ends a text, and what a
user sees of it, is decided outside.

Invariant between rounds: body slots = committed − 1, and head slots + pending and dropped pairs = committed − 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtplxd.engine.acceptance import accept_chances, count_accepted, greedy_passed, residual_law, token_at
from mtplxd.engine.row import Pending, Row
from mtplxd.engine.sampling import draw, filter_rows, scatter_vocab
from mtplxd.engine.uniforms import UniformSource
from mtplxd.families.kv import RowCache
from mtplxd.families.protocols import Head, Taps, Target
from mtplxd.platform.mlx import Array, mx


@dataclass(slots=True)
class Batch:
    """Rows that share forwards, with the caches their tokens are in. `head` is None where nothing drafts."""

    target: Target
    head: Head | None
    rows: list[Row]
    cache: list[RowCache]
    head_cache: list[RowCache]


@dataclass(slots=True)
class Drafts:
    """k drafts a row: ids [B, k] of the whole vocabulary, the laws they came from [B, k, V] (None when greedy)."""

    ids: Array
    laws: Array | None
    lengths: Array
    healthy: Array


@dataclass(slots=True)
class Flight:
    """A launched round. Arrays are not evaluated; `begin` are the body's lengths before it."""

    begin: list[int]
    head_begin: list[int]
    absorbed: list[int]
    depth: int
    drafts: Drafts
    logits: Array
    taps: Taps
    source: UniformSource
    accepted: Array
    token: Array
    finite: Array
    sound: Array


@dataclass(slots=True)
class Landing:
    """What a round made of one row. `tokens` are the accepted drafts and the correction or bonus token."""

    tokens: list[int]
    drafted: int
    accepted: int
    finite: bool
    healthy: bool
    redone: bool


def launch(batch: Batch, source: UniformSource, lengths: Sequence[int], last: Array | None = None) -> Flight:
    """Starts a round that drafts up to `lengths[b]` tokens for row b.

    `last` [B] is the last committed token of each row where the host does not know it yet (a round at depth 0).
    """
    begin, head_begin = _lengths(batch.cache), _lengths(batch.head_cache)
    absorbed = [len(row.pending.tokens) if row.pending else 0 for row in batch.rows]
    if last is None:
        last = mx.array([row.tokens[-1] for row in batch.rows], mx.int32)
    drafts = _draft(batch, source, lengths)
    depth = drafts.ids.shape[1]
    tokens = mx.concatenate([last[:, None], drafts.ids], axis=1) if depth else last[:, None]
    hidden, taps = batch.target.run(tokens, batch.cache)
    logits = batch.target.logits(hidden)
    finite = mx.isfinite(mx.sum(logits, axis=(1, 2)))  # one number that is not finite makes the sum so
    accepted, token, sound = _judge(batch.rows, logits, drafts, source, full=False)
    mx.async_eval(accepted, token, finite, sound, drafts.healthy)
    if not depth:
        absorbed = [0] * len(batch.rows)
    return Flight(
        begin, head_begin, absorbed, depth, drafts, logits, taps, source, accepted, token, finite, sound
    )


def land(batch: Batch, flight: Flight) -> list[Landing]:
    """Waits for a round and reads what it made of each row; commits nothing."""
    redone = not all(flight.sound.tolist())
    if redone:
        flight.accepted, flight.token, _ = _judge(
            batch.rows, flight.logits, flight.drafts, flight.source, full=True
        )
    accepted, token = flight.accepted.tolist(), flight.token.tolist()
    ids, lengths = flight.drafts.ids.tolist(), flight.drafts.lengths.tolist()
    finite, healthy = flight.finite.tolist(), flight.drafts.healthy.tolist()
    return [
        Landing([*ids[b][: accepted[b]], token[b]], lengths[b], accepted[b], finite[b], healthy[b], redone)
        for b in range(len(batch.rows))
    ]


def commit(
    batch: Batch, flight: Flight, landings: Sequence[Landing], keep: Sequence[int], ahead: int = 0
) -> None:
    """Commits the first `keep[b]` tokens of each row and rolls both caches back to what is committed.

    `ahead` is 1 where the successor of a depth-0 round is already in flight.
    """
    for row, landing, kept in zip(batch.rows, landings, keep, strict=True):
        row.tokens += landing.tokens[:kept]
        decided = landing.drafted if kept == len(landing.tokens) else min(kept, landing.drafted)
        row.counts.add(landing.drafted, landing.accepted, decided)
        if not landing.healthy:
            row.degrade("head_non_finite")
    for layer in batch.cache:
        layer.roll_back([begin + kept + ahead for begin, kept in zip(flight.begin, keep, strict=True)])
    _settle_head(batch, flight, landings, keep)


def discard(batch: Batch, flight: Flight) -> None:
    """Takes a launched round back as if it had never begun."""
    for layer in batch.cache:
        layer.roll_back(flight.begin)
    for layer in batch.head_cache:
        layer.roll_back(flight.head_begin)


def _lengths(cache: Sequence[RowCache]) -> list[int]:
    return list(cache[0].lengths) if cache else []


def _draft(batch: Batch, source: UniformSource, lengths: Sequence[int]) -> Drafts:
    """Absorbs the pending pairs, then drafts. Rows without pairs have nothing to draft from and draft nothing."""
    rows = batch.rows
    wanted = [length if row.pending else 0 for length, row in zip(lengths, rows, strict=True)]
    depth = max(wanted)
    counts = mx.array(wanted, mx.int32)
    if batch.head is None or depth == 0:
        return Drafts(mx.array([[] for _ in rows], mx.int32), None, counts, mx.array([True for _ in rows]))
    state = _absorb(batch)
    ids: list[Array] = []
    laws: list[Array | None] = []
    healthy: list[Array] = []
    for step in range(depth):
        if step:
            state = batch.head.extend(ids[-1][:, None], state, batch.head_cache)
        logits = batch.head.logits(state)[:, 0]
        healthy.append(mx.isfinite(mx.sum(logits, axis=-1)))
        chosen, law = _draw_draft(batch, logits, step, source)
        mx.async_eval(chosen)  # it runs while the next step's graph is built
        ids.append(chosen)
        laws.append(law)
    sane = mx.all(mx.stack(healthy, axis=1), axis=1)
    stacked = None if laws[0] is None else mx.stack(laws, axis=1)
    return Drafts(mx.stack(ids, axis=1), stacked, mx.where(sane, counts, 0), sane)


def _draw_draft(batch: Batch, logits: Array, step: int, source: UniformSource) -> tuple[Array, Array | None]:
    """One draft a row from head logits [B, D]: ids [B], and the law it came from [B, V]."""
    head, samplers = batch.head, [row.sampler for row in batch.rows]
    vocab = head.draft_vocab if head else None
    if all(sampler.greedy for sampler in samplers):
        best = mx.argmax(logits, axis=-1).astype(mx.int32)
        return (best if vocab is None else vocab[best]), None
    law = filter_rows(logits, samplers).p
    best = draw(law, source.draft(step, law))
    ids = best if vocab is None else vocab[best]
    return ids, scatter_vocab(law, vocab, batch.target.vocab_size)


def _absorb(batch: Batch) -> Array:
    """Runs every row's pending pairs through the head in one forward; gives each row's newest z, [B, 1, H]."""
    assert batch.head is not None
    pending = [row.pending for row in batch.rows]
    counts = [len(pairs.tokens) if pairs else 0 for pairs in pending]
    tokens, taps = _pad_pairs(pending, max(counts))
    before = _lengths(batch.head_cache)
    states = batch.head.absorb(tokens, taps, batch.head_cache)
    for layer in batch.head_cache:
        layer.roll_back([begin + count for begin, count in zip(before, counts, strict=True)])
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


def _judge(
    rows: Sequence[Row], logits: Array, drafts: Drafts, source: UniformSource, *, full: bool
) -> tuple[Array, Array, Array]:
    """How many drafts pass, the token after them, and whether the laws behind both were sound; each [B]."""
    if drafts.ids.shape[1] == 0:
        token, sound = _draw_token(rows, logits, source, full=full)
        return mx.zeros_like(drafts.lengths), token, sound
    if all(row.sampler.greedy for row in rows):
        best = mx.argmax(logits, axis=-1).astype(mx.int32)
        accepted = count_accepted(greedy_passed(best, drafts.ids), drafts.lengths)
        return accepted, token_at(best, accepted), mx.ones((len(rows),), mx.bool_)
    law = filter_rows(logits, [row.sampler for row in rows], full=full)
    q = law.p[:, :0] if drafts.laws is None else drafts.laws
    chances = accept_chances(law.p, q, drafts.ids)
    accepted = count_accepted(source.accept(chances) < chances, drafts.lengths)
    left = residual_law(law.p, q, accepted, drafts.lengths)
    token = draw(left, source.final(left))
    beyond = mx.arange(law.sound.shape[1]) > accepted[:, None]
    return accepted, token, mx.all(law.sound | beyond, axis=1)


def _draw_token(
    rows: Sequence[Row], logits: Array, source: UniformSource, *, full: bool
) -> tuple[Array, Array]:
    """The token of a round without drafts, from logits [B, 1, V], and whether its law was sound; each [B].

    What `_judge` comes to for no drafts, in a third of the operations: plain decoding waits for each of them.
    """
    if all(row.sampler.greedy for row in rows):
        return mx.argmax(logits[:, 0], axis=-1).astype(mx.int32), mx.array([True for _ in rows])
    law = filter_rows(logits[:, 0], [row.sampler for row in rows], full=full)
    return draw(law.p, source.final(law.p)), law.sound


def _settle_head(batch: Batch, flight: Flight, landings: Sequence[Landing], keep: Sequence[int]) -> None:
    """Drops the drafted head slots and queues the pairs that the committed tokens made true.

    Where that pushes older pairs out, the head's slots go too: its history never has a gap, it restarts.
    """
    if batch.head is None:
        return
    true = [begin + count for begin, count in zip(flight.head_begin, flight.absorbed, strict=True)]
    for b, (row, landing, kept) in enumerate(zip(batch.rows, landings, keep, strict=True)):
        if flight.absorbed[b]:
            row.pending = None
        if row.add_pending(landing.tokens[:kept], tuple(tap[b : b + 1, :kept] for tap in flight.taps)):
            row.dropped_pairs += true[b]
            true[b] = 0
    for layer in batch.head_cache:
        layer.roll_back(true)
