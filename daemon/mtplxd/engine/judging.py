"""What a round drafts and what it keeps: laws from the one filter chain, each row by its own acceptance rule.

The rules themselves are `acceptance`'s; forwards, caches and commits are `round`'s. Rows of one batch may differ in
rule: what a rule needs is computed for the whole batch, and each row takes its own rule's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mtplxd.engine.acceptance import (
    Chances,
    block_chances,
    count_before_failure,
    count_to_last_pass,
    equal_passed,
    race,
    residual_law,
    token_at,
    token_chances,
)
from mtplxd.engine.request import BLOCK, COUPLED, GREEDY
from mtplxd.engine.row import Row
from mtplxd.engine.sampling import DRAFT_CANDIDATES, FEW_CANDIDATES, Law, draw, filter_rows, scatter_vocab
from mtplxd.engine.uniforms import UniformSource
from mtplxd.platform.mlx import Array, mx


@dataclass(slots=True)
class Drafts:
    """k drafts a row: ids [B, k] of the whole vocabulary, the laws they came from [B, k, V] (None where no rule asks).

    `lengths` [B] are the drafts that count; `healthy` [B] is False where the head gave a number that is none.
    """

    ids: Array
    laws: Array | None
    lengths: Array
    healthy: Array


class Judgement(NamedTuple):
    """Of each row: drafts accepted, the token after them, whether the laws behind both were sound; each [B].

    `law` [B, n, V] is None where nothing but the largest logit counts.
    """

    accepted: Array
    token: Array
    sound: Array
    law: Array | None


def draw_drafts(
    rows: Sequence[Row], logits: Array, step: int, source: UniformSource, vocab: Array | None, size: int
) -> tuple[Array, Array | None]:
    """Draft `step` of each row from shaped head logits [B, D]: ids int32 [B], and its law [B, V] if a rule asks."""
    rules = {row.rule for row in rows}
    if rules == {GREEDY}:
        best = mx.argmax(logits, axis=-1).astype(mx.int32)
        return (best if vocab is None else vocab[best]), None
    law = filter_rows(logits, [row.drafting for row in rows], limit=DRAFT_CANDIDATES).p
    chosen = draw(law, source.draft(step, law)) if rules != {COUPLED} else None
    if COUPLED in rules:
        times = source.races(step, 1, size)[:, 0].astype(law.dtype)
        raced = race(law, times if vocab is None else times[:, vocab])
        chosen = raced if chosen is None else mx.where(_is_rule(rows, COUPLED), raced, chosen)
    ids = chosen if vocab is None else vocab[chosen]
    return ids, None if rules <= {GREEDY, COUPLED} else scatter_vocab(law, vocab, size)


def judge(
    rows: Sequence[Row], logits: Array, drafts: Drafts, source: UniformSource, *, full: bool
) -> Judgement:
    """Judges the drafts by shaped target logits [B, k+1, V]. `full` ranks the whole vocabulary."""
    if drafts.ids.shape[1] == 0:
        return _judge_nothing(rows, logits, drafts, source, full=full)
    rules = {row.rule for row in rows}
    if rules == {GREEDY}:
        return _judge_equal(mx.argmax(logits, axis=-1).astype(mx.int32), drafts, None)
    law = _target_law(rows, logits, full)
    if not rules <= {GREEDY, COUPLED}:
        sampled = _judge_sampled(rows, law, drafts, source)
        if COUPLED not in rules:
            return sampled
    raced = _judge_equal(_race(law.p, source), drafts, law)
    if rules <= {GREEDY, COUPLED}:
        return raced
    own = _is_rule(rows, COUPLED)
    accepted, token, sound = (
        mx.where(own, one, other) for one, other in zip(raced[:3], sampled[:3], strict=True)
    )
    return Judgement(accepted, token, sound, law.p)


def _target_law(rows: Sequence[Row], logits: Array, full: bool) -> Law:
    """The laws of shaped target logits [B, ..., V]; what is too flat for the candidates shows as not sound.

    Races are run over one number of candidates: a sum over more of them may differ in its last bit.
    """
    many = full or any(row.flat or row.rule == COUPLED for row in rows)
    samplers = [row.sampler for row in rows]
    return filter_rows(logits, samplers, full=full, limit=None if many else FEW_CANDIDATES)


def _judge_nothing(
    rows: Sequence[Row], logits: Array, drafts: Drafts, source: UniformSource, *, full: bool
) -> Judgement:
    """A round without drafts, in a third of the operations: plain decoding waits for each of them."""
    nothing, rules = mx.zeros_like(drafts.lengths), {row.rule for row in rows}
    if rules == {GREEDY}:
        token = mx.argmax(logits[:, 0], axis=-1).astype(mx.int32)
        return Judgement(nothing, token, mx.ones(nothing.shape, mx.bool_), None)
    law = _target_law(rows, logits[:, 0], full)
    token = draw(law.p, source.final(law.p)) if rules != {COUPLED} else None
    if COUPLED in rules:
        raced = _race(law.p[:, None], source)[:, 0]
        token = raced if token is None else mx.where(_is_rule(rows, COUPLED), raced, token)
    return Judgement(nothing, token, law.sound, law.p[:, None])


def _judge_sampled(rows: Sequence[Row], law: Law, drafts: Drafts, source: UniformSource) -> Judgement:
    """`token` and `block`; a greedy row's laws are certain, so that `token` decodes it greedily."""
    q, lengths = drafts.laws, drafts.lengths
    by_block = _is_rule(rows, BLOCK)
    chances, weights = _chances(rows, law.p, drafts, by_block)
    passed = source.accept(chances) < chances
    accepted = mx.where(by_block, count_to_last_pass(passed, lengths), count_before_failure(passed, lengths))
    left = residual_law(law.p, q, weights, accepted, lengths)
    token = draw(left, source.final(left))
    looked_at = mx.where(by_block, lengths, accepted)
    beyond = mx.arange(law.sound.shape[1]) > looked_at[:, None]
    return Judgement(accepted, token, mx.all(law.sound | beyond, axis=1), law.p)


def _chances(rows: Sequence[Row], p: Array, drafts: Drafts, by_block: Array) -> Chances:
    kinds = {row.rule == BLOCK for row in rows}
    found = [
        block_chances(p, drafts.laws, drafts.ids, drafts.lengths)
        if kind
        else token_chances(p, drafts.laws, drafts.ids)
        for kind in sorted(kinds)
    ]
    if len(found) == 1:
        return found[0]
    return Chances(*(mx.where(by_block[:, None], own, other) for other, own in zip(*found, strict=True)))


def _judge_equal(best: Array, drafts: Drafts, law: Law | None) -> Judgement:
    """Greedy and `coupled`: the text is the target's own choice `best` [B, k+1], whatever was drafted."""
    accepted = count_before_failure(equal_passed(best, drafts.ids), drafts.lengths)
    if law is None:
        return Judgement(accepted, token_at(best, accepted), mx.ones(accepted.shape, mx.bool_), None)
    beyond = mx.arange(best.shape[1]) > accepted[:, None]
    return Judgement(accepted, token_at(best, accepted), mx.all(law.sound | beyond, axis=1), law.p)


def _race(p: Array, source: UniformSource) -> Array:
    """The winners int32 [B, n] of the next n positions' races, p [B, n, V]."""
    return race(p, source.races(0, p.shape[1], p.shape[2]).astype(p.dtype))


def _is_rule(rows: Sequence[Row], rule: str) -> Array:
    return mx.array([row.rule == rule for row in rows])
