"""The first half of a round: pairs that wait go through the head, then up to k drafts a row come out of it.

What the target says of the drafts is `round`'s. A head that fails costs its rows their drafts, never the round.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from mtplxd.engine.batch import Batch
from mtplxd.engine.catching_up import absorb_apart, share_width
from mtplxd.engine.exponential import add_up
from mtplxd.engine.judging import Drafts, draw_drafts
from mtplxd.engine.masking import MaskWalk, within_vocab
from mtplxd.engine.row import Row
from mtplxd.engine.shaping import shape_logits
from mtplxd.engine.uniforms import UniformSource
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array, mx

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Drafting:
    """What was drafted. `begin` are each head layer's lengths before it, `absorbed[b]` the waiting pairs of row b that
    went through the head since; for the rows `failed` the head raised."""

    drafts: Drafts
    begin: list[list[int]]
    absorbed: list[int]
    failed: set[int] = field(default_factory=set)


def draft(batch: Batch, source: UniformSource, lengths: Sequence[int], walk: MaskWalk) -> Drafting:
    """Drafts up to `lengths[b]` tokens of each row, none where there is no pair to draft from.

    All rows draft as many as the most any of them wants; what is beyond a row's own does not count.
    """
    wanted = _wanted(batch, lengths)
    failed = _catch_up(batch, wanted) if any(wanted) else set()
    begin = [list(layer.lengths) for layer in batch.head_cache]
    if not any(wanted):
        return Drafting(_no_drafts(batch.rows), begin, [0] * len(batch.rows), failed)
    walk.limits = wanted
    try:
        state, absorbed = _absorb(batch, wanted)
        return Drafting(_draft_steps(batch, source, wanted, walk, state), begin, absorbed, failed)
    except Exception:  # whatever is wrong with a head, its rows can still be decoded without it
        log.exception("the head failed while drafting")
        for layer, held in zip(batch.head_cache, begin, strict=True):
            layer.roll_back(held)
        walk.restart()
        failed |= _to_blame(batch, wanted)
        return Drafting(_no_drafts(batch.rows), begin, [0] * len(batch.rows), failed)


def keep_pairs(head_cache: Sequence[LayerCache], pairs: Sequence[int]) -> None:
    """Keeps each row's first `pairs[b]` true pairs. A further layer holds one fewer: its tokens lie one further on."""
    for lag, layer in enumerate(head_cache):
        layer.roll_back([max(0, count - lag) for count in pairs])


def _wanted(batch: Batch, lengths: Sequence[int]) -> list[int]:
    if batch.head is None:
        return [0] * len(batch.rows)
    return [
        0 if row.plain or row.pending is None else length
        for length, row in zip(lengths, batch.rows, strict=True)
    ]


def _catch_up(batch: Batch, wanted: list[int]) -> set[int]:
    """Absorbs the older pairs of rows that drafted nothing for long, each row apart; the newest go on waiting.

    Discarding the round does not take that back. A row that must wait for its turn drafts nothing this round, and
    neither does one for which the head raised: the latter are given. `wanted` is changed accordingly.
    """
    failed: set[int] = set()
    waiting = [_waiting(row) if length else 0 for row, length in zip(batch.rows, wanted, strict=True)]
    width, turn = share_width(waiting, len(batch.rows))
    for b, count in enumerate(waiting):
        if count <= width:
            continue
        try:
            if b in turn:
                absorb_apart(batch, b, count - width)
            else:
                wanted[b] = 0
        except Exception:  # as for all rows at once
            log.exception("the head failed while a row caught up")
            wanted[b] = 0
            failed.add(b)
    return failed


def _waiting(row: Row) -> int:
    return len(row.pending.tokens) if row.pending else 0


def _no_drafts(rows: Sequence[Row]) -> Drafts:
    return Drafts(
        mx.array([[] for _ in rows], mx.int32),
        None,
        mx.array([0 for _ in rows], mx.int32),
        mx.array([True for _ in rows]),
    )


def _draft_steps(
    batch: Batch, source: UniformSource, wanted: Sequence[int], walk: MaskWalk, state: Array
) -> Drafts:
    """Drafts from each row's newest state [B, 1, H]; those before the first that came from numbers that are none
    count."""
    assert batch.head is not None
    head = batch.head
    ids: list[Array] = []
    laws: list[Array | None] = []
    healthy: list[Array] = []
    for step in range(max(wanted)):
        if step:
            state = head.extend(ids[-1][:, None], state, batch.head_cache)
        logits = head.logits(state)[:, 0]
        healthy.append(mx.isfinite(add_up(logits)[..., 0]))
        shaped = _shape_draft(batch, logits, ids, walk)
        chosen, law = draw_drafts(batch.rows, shaped, step, source, head.draft_vocab, batch.target.vocab_size)
        mx.async_eval(chosen)  # it runs while the next step's graph is built
        ids.append(chosen)
        laws.append(law)
        if walk.needed and batch.mask_drafts:
            walk.step(chosen.tolist())
    counted, sane = _count_sane(healthy, wanted)
    stacked = None if laws[0] is None else mx.stack(laws, axis=1)
    return Drafts(mx.stack(ids, axis=1), stacked, counted, sane, batch.vocab, wanted)


def _count_sane(healthy: Sequence[Array], wanted: Sequence[int]) -> tuple[Array, Array]:
    """Of bool [B] a step: drafts that count, int32 [B], and whether all that the row asked for do, bool [B]."""
    most = mx.array(wanted, mx.int32)
    sane = mx.stack(healthy, axis=1).astype(mx.int32)
    counted = mx.minimum(most, mx.sum(mx.cumprod(sane, axis=1), axis=1))
    return counted, counted == most


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


def _absorb(batch: Batch, wanted: Sequence[int]) -> tuple[Array, list[int]]:
    """Runs waiting pairs through the head in one forward: each row's newest state [B, 1, H], and how many it took.

    The forward is as wide as the rows that draft need it; of the others it takes those whose pairs fit in.
    """
    assert batch.head is not None
    waiting = [_waiting(row) for row in batch.rows]
    width = max(count for count, length in zip(waiting, wanted, strict=True) if length)
    counts = [count if count <= width else 0 for count in waiting]
    tokens, taps = _pad_pairs(batch.rows, counts, width)
    before = list(batch.head_cache[0].lengths) if batch.head_cache else []
    states = batch.head.absorb(tokens, taps, batch.head_cache)
    keep_pairs(batch.head_cache, [begin + count for begin, count in zip(before, counts, strict=True)])
    if len(counts) == 1:
        return states[:, -1:], counts
    newest = mx.array([max(count - 1, 0) for count in counts])[:, None, None]
    return mx.take_along_axis(states, newest, axis=1), counts


def _pad_pairs(rows: Sequence[Row], counts: Sequence[int], width: int) -> tuple[Array, Taps]:
    """The waiting pairs of rows side by side, of those whose count is not 0.

    What pads a row is written past its length and never read.
    """
    taken = [row.pending if row.pending and count else None for row, count in zip(rows, counts, strict=True)]
    like = next(pairs.joined() for pairs in taken if pairs)
    tokens, columns = [], []
    for pairs in taken:
        ids, taps = (pairs.tokens, pairs.joined()) if pairs else ([], tuple(tap[:, :0] for tap in like))
        tokens.append([*ids, *[0] * (width - len(ids))])
        columns.append([_pad_tap(tap, width) for tap in taps])
    sides = zip(*columns, strict=True)
    joined = tuple(parts[0] if len(rows) == 1 else mx.concatenate(parts) for parts in sides)
    return mx.array(tokens, mx.int32), joined


def _pad_tap(tap: Array, width: int) -> Array:
    missing = width - tap.shape[1]
    return mx.pad(tap, [(0, 0), (0, missing), (0, 0)]) if missing else tap


def _to_blame(batch: Batch, wanted: Sequence[int]) -> set[int]:
    """The rows that cannot draft alone either; all that were to draft where each can."""
    drafting = [b for b, length in enumerate(wanted) if length]
    alone = {b for b in drafting if len(drafting) > 1 and not _works_alone(batch, b)}
    return alone or set(drafting)


def _works_alone(batch: Batch, place: int) -> bool:
    try:
        one = batch.copy_row(place)
        assert one.head is not None
        state, _ = _absorb(one, [1])
        mx.eval(one.head.logits(state))
    except Exception:  # that it fails is the answer
        return False
    return True
