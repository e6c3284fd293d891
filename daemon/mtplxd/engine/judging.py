"""What a round drafts and what it keeps: laws from the one filter chain, each row by its own acceptance rule.

The rules themselves are `acceptance`'s; forwards, caches and commits are `round`'s. Rows of one batch may differ in
everything. Those that must be treated differently (laws with a cut or without, races or uniforms) are judged apart,
so that no row pays for what another asks for; samplers of one kind cost what one sampler costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mtplxd.engine.acceptance import (
    Chances,
    Laws,
    block_chances,
    count_before_failure,
    count_to_last_pass,
    equal_passed,
    race,
    residual_law,
    token_at,
    token_chances,
)
from mtplxd.engine.draft_vocab import DraftVocab
from mtplxd.engine.grouping import Grouping, take_rows
from mtplxd.engine.request import BLOCK, COUPLED, DRAFT_CANDIDATES, GREEDY, TOKEN
from mtplxd.engine.row import Row
from mtplxd.engine.sampling import (
    FEW_CANDIDATES,
    Law,
    draw,
    filter_rows,
    is_cut,
    mass_at,
    scatter,
)
from mtplxd.engine.uniforms import UniformSource
from mtplxd.platform.mlx import Array, mx

WORTH_SKIPPING = 0.8
"""Positions that count are filtered apart where they are at most this share of all."""


@dataclass(slots=True)
class Drafts:
    """k drafts a row: ids [B, k] of the whole vocabulary, and the laws they came from, [B, k, D] over the head's
    vocabulary (None where no rule asks); `vocab` is None where that is the whole one.

    `lengths` [B] are the drafts that count; `healthy` [B] is False where the head gave a number that is none. `most`
    are drafts of each row beyond which none counts, where the host knows.
    """

    ids: Array
    laws: Array | None
    lengths: Array
    healthy: Array
    vocab: DraftVocab | None = None
    most: Sequence[int] | None = None

    def of(self, places: Sequence[int]) -> Drafts:
        """The drafts of some rows."""
        return Drafts(
            take_rows(self.ids, places),
            None if self.laws is None else take_rows(self.laws, places),
            take_rows(self.lengths, places),
            take_rows(self.healthy, places),
            self.vocab,
            None if self.most is None else [self.most[place] for place in places],
        )

    def masses_at(self, ids: Array | None, size: int) -> Array:
        """What the laws have at ids [B, k, c], of `size` ids in all; [B, k, size] where None."""
        assert self.laws is not None
        if ids is None:
            return scatter(self.laws, None if self.vocab is None else self.vocab.ids, size)
        return (
            mx.take_along_axis(self.laws, ids, axis=-1)
            if self.vocab is None
            else self.vocab.pick(self.laws, ids)
        )


class Judgement(NamedTuple):
    """Of each row: drafts accepted, the token after them, whether the laws behind both were sound; each [B]."""

    accepted: Array
    token: Array
    sound: Array
    drawn: Drawn


class Drawn:
    """The laws that tokens were drawn from. Greedy rows have none: their choice is certain."""

    def __init__(self, grouping: Grouping, laws: Sequence[Law | None]) -> None:
        self._grouping, self._laws = grouping, laws

    def at(self, tokens: Array, dtype: Any) -> Array:
        """The masses of tokens [B, n] at n positions."""
        parts = []
        for places, law in zip(self._grouping.groups, self._laws, strict=True):
            own = take_rows(tokens, places)
            parts.append(mx.ones(own.shape, dtype) if law is None else law.mass_at(own))
        return self._grouping.join(parts)


def draw_drafts(
    rows: Sequence[Row], logits: Array, step: int, source: UniformSource, vocab: Array | None, size: int
) -> tuple[Array, Array | None]:
    """Draft `step` of each row from shaped head logits [B, D]: ids int32 [B], and its law [B, D] if a rule asks."""
    rules = {row.rule for row in rows}
    if rules == {GREEDY}:
        best = mx.argmax(logits, axis=-1).astype(mx.int32)
        return (best if vocab is None else vocab[best]), None
    asked = not rules <= {GREEDY, COUPLED}
    grouping = Grouping([(row.rule == COUPLED, is_cut(row.drafting)) for row in rows])
    places, laws = [], []
    for group in grouping.groups:
        own, of_group = [rows[b] for b in group], source if grouping.single else source.of(group)
        samplers = [row.drafting for row in own]
        law = filter_rows(take_rows(logits, group), samplers, limit=DRAFT_CANDIDATES, closed=True)
        if own[0].rule == COUPLED:
            times = of_group.races(step, 1, size)[:, 0]
            places.append(_race(law, times if vocab is None else times[:, vocab]))
        else:
            places.append(draw(law, of_group.draft(step, law)))
        if asked:
            laws.append(scatter(law.p, law.ids, logits.shape[-1]))
    chosen = grouping.join(places)
    return (chosen if vocab is None else vocab[chosen]), grouping.join(laws) if asked else None


def judge(
    rows: Sequence[Row], logits: Array, drafts: Drafts, source: UniformSource, *, full: bool
) -> Judgement:
    """Judges the drafts by shaped target logits [B, k+1, V]. `full` ranks the whole vocabulary."""
    sampled = any(row.rule in (TOKEN, BLOCK) for row in rows)
    grouping = Grouping([_kind(row, sampled) for row in rows])
    if grouping.single:
        found, law = _judge_alike(rows, logits, drafts, source, full, sampled)
        return Judgement(*found, Drawn(grouping, [law]))
    parts, laws = [], []
    for group in grouping.groups:
        own = [rows[b] for b in group]
        given = take_rows(logits, group), drafts.of(group), source.of(group)
        part, law = _judge_alike(own, *given, full, sampled)
        parts.append(part)
        laws.append(law)
    accepted, token, sound = (grouping.join(values) for values in zip(*parts, strict=True))
    return Judgement(accepted, token, sound, Drawn(grouping, laws))


Found = tuple[Array, Array, Array]
"""Accepted, token, sound."""


def _kind(row: Row, sampled: bool) -> tuple[str, bool]:
    """What rows must have in common to be judged together: how tokens are chosen, and whether laws are cut.

    Beside sampled rows a greedy one is sampled from certain laws, which `token` decodes greedily.
    """
    if row.rule == GREEDY and not sampled:
        return GREEDY, True
    return COUPLED if row.rule == COUPLED else TOKEN, is_cut(row.sampler)


def _judge_alike(
    rows: Sequence[Row], logits: Array, drafts: Drafts, source: UniformSource, full: bool, sampled: bool
) -> tuple[Found, Law | None]:
    """Rows of one kind."""
    if rows[0].rule == GREEDY and not sampled:
        return _judge_equal(mx.argmax(logits, axis=-1).astype(mx.int32), drafts, None), None
    law = _target_laws(rows, logits, drafts, full)
    if rows[0].rule == COUPLED:
        times = source.races(0, logits.shape[1], logits.shape[2])
        return _judge_equal(_race(law, times), drafts, law), law
    if drafts.ids.shape[1] == 0:
        first = law.pick((slice(None), 0))
        return (mx.zeros_like(drafts.lengths), draw(first, source.final(first)), first.sound), law
    return _judge_sampled(rows, law, drafts, source, logits.shape[-1]), law


def _target_laws(rows: Sequence[Row], logits: Array, drafts: Drafts, full: bool) -> Law:
    """The laws of shaped target logits [B, n, V]; what is too flat for the candidates shows as not sound.

    Where few positions count they are filtered apart; the others then have the law of their row's last.
    """
    limit = None if full or any(row.flat for row in rows) else FEW_CANDIDATES
    samplers, (count, width) = [row.sampler for row in rows], logits.shape[:2]
    counting = [width if drafts.most is None else most + 1 for most in drafts.most or [0] * count]
    if sum(counting) > WORTH_SKIPPING * count * width:
        return filter_rows(logits, samplers, full=full, limit=limit)
    begins = [sum(counting[:b]) for b in range(count)]
    taken = [b * width + i for b in range(count) for i in range(counting[b])]
    each = [sampler for sampler, positions in zip(samplers, counting, strict=True) for _ in range(positions)]
    laws = filter_rows(mx.flatten(logits, 0, 1)[mx.array(taken)], each, full=full, limit=limit)
    spread = [[begins[b] + min(i, counting[b] - 1) for i in range(width)] for b in range(count)]
    return laws.pick(mx.array(spread))


def _judge_sampled(rows: Sequence[Row], law: Law, drafts: Drafts, source: UniformSource, size: int) -> Found:
    """`token` and `block`; a greedy row's laws are certain, so that `token` decodes it greedily."""
    lengths, laws = drafts.lengths, _compare(law, drafts, size)
    by_block = [row.rule == BLOCK for row in rows]
    chances, weights = _chances(laws, lengths, by_block)
    passed = source.accept(chances) < chances
    accepted = _where(
        by_block, lambda: count_to_last_pass(passed, lengths), lambda: count_before_failure(passed, lengths)
    )
    ids = None if law.ids is None else law.ids[mx.arange(len(rows)), accepted]
    left = Law(residual_law(laws, weights, accepted, lengths), ids, law.sound)
    token = draw(left, source.final(left))
    looked_at = _where(by_block, lambda: lengths, lambda: accepted)
    beyond = mx.arange(law.sound.shape[1]) > looked_at[:, None]
    return accepted, token, mx.all(law.sound | beyond, axis=1)


def _compare(law: Law, drafts: Drafts, size: int) -> Laws:
    """p and q over the target's places."""
    count, p = drafts.ids.shape[1], law.p
    ids = None if law.ids is None else law.ids[:, :count]
    q_drafted = drafts.masses_at(drafts.ids[..., None], size)[..., 0]
    return Laws(p, drafts.masses_at(ids, size), mass_at(p[:, :count], ids, drafts.ids), q_drafted)


def _chances(laws: Laws, lengths: Array, by_block: Sequence[bool]) -> Chances:
    if all(by_block):
        return block_chances(laws, lengths)
    if not any(by_block):
        return token_chances(laws)
    pairs = zip(block_chances(laws, lengths), token_chances(laws), strict=True)
    own = mx.array(list(by_block))[:, None]
    return Chances(*(mx.where(own, block, token) for block, token in pairs))


def _judge_equal(best: Array, drafts: Drafts, law: Law | None) -> Found:
    """Greedy and `coupled`: the text is the target's own choice `best` [B, n], whatever was drafted."""
    if best.shape[1] == 1:
        sound = mx.ones(best.shape[:1], mx.bool_) if law is None else law.sound[:, 0]
        return mx.zeros_like(drafts.lengths), best[:, 0], sound
    accepted = count_before_failure(equal_passed(best, drafts.ids), drafts.lengths)
    if law is None:
        return accepted, token_at(best, accepted), mx.ones(accepted.shape, mx.bool_)
    beyond = mx.arange(best.shape[1]) > accepted[:, None]
    return accepted, token_at(best, accepted), mx.all(law.sound | beyond, axis=1)


def _race(law: Law, times: Array) -> Array:
    """The winners int32 [...] of races of laws [...] with times [..., V] of all ids."""
    if law.ids is None:
        return race(law.weights, times.astype(law.dtype))
    own = mx.take_along_axis(times, law.ids, axis=-1).astype(law.dtype)
    return mx.take_along_axis(law.ids, race(law.weights, own)[..., None], axis=-1)[..., 0]


def _where(chosen: Sequence[bool], then: Callable[[], Array], other: Callable[[], Array]) -> Array:
    """Row by row one of two [B]; what no row needs is not made."""
    if all(chosen):
        return then()
    return mx.where(mx.array(list(chosen)), then(), other()) if any(chosen) else other()
