"""Real rounds under grammars: rows with and without one, and every matcher at the committed text afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from mtplxd.engine.batch import Batch
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, SamplerSettings
from mtplxd.engine.round import Flight, Landing, commit, discard, land, launch
from mtplxd.platform.mlx import Array, mx
from support.ragged import ForcedSource, assert_settled, counted, open_ragged
from support.table_matcher import TableLanguage
from support.table_model import TableHead, TableTarget

# Of five tokens, 4 belongs to no text; what may follow depends on the state; texts never end.
LANGUAGE = TableLanguage(moves=[{0: 1, 1: 0, 2: 2}, {0: 2, 3: 0}, {1: 1, 2: 0, 3: 2}], final=frozenset())
PROMPTS = [[1, 2, 3], [3, 2], [0, 1, 2, 3, 0, 1], [2, 2]]
HOT = SamplerSettings(temperature=1.4)


def open_batch(
    target: TableTarget, head: TableHead, sampler: SamplerSettings, grammars: Sequence[TableLanguage | None]
) -> Batch:
    batch = open_ragged(target, head, PROMPTS[: len(grammars)], sampler)
    for row, grammar in zip(batch.rows, grammars, strict=True):
        row.matcher = grammar.start() if grammar else None  # type: ignore[assignment]
    return batch


def follow(batch: Batch, flight: Flight, keep: Sequence[int] | None = None) -> list[Landing]:
    """Lands and commits a round as a decoder does: matchers follow what is kept."""
    landings = land(batch, flight)
    counts = list(keep or [len(landing.tokens) for landing in landings])
    for row, landing, count in zip(batch.rows, landings, counts, strict=True):
        assert row.matcher is None or all(row.matcher.advance(token) for token in landing.tokens[:count])
    commit(batch, flight, landings, counts)
    return landings


def assert_matchers_at_the_text(batch: Batch) -> None:
    for row, prompt in zip(batch.rows, PROMPTS, strict=False):
        if row.matcher is not None:
            made = row.tokens[len(prompt) :]
            assert row.matcher.consumed == made  # type: ignore[attr-defined]
            assert LANGUAGE.state(made) is not None


@pytest.mark.parametrize("mask_drafts", [True, False])
@pytest.mark.parametrize("rule", [TOKEN, BLOCK])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_matcher_is_at_the_committed_text_after_any_accepted_length(
    depth: int, rule: str, mask_drafts: bool
) -> None:
    target = TableTarget()
    batch = open_batch(target, TableHead(target), replace(HOT, acceptance=rule), [LANGUAGE])
    batch.mask_drafts = mask_drafts
    for turn, wanted in enumerate([*range(depth + 1), *reversed(range(depth + 1))] * 2):
        source = ForcedSource([wanted], np.random.default_rng(turn))
        # Drafts that leave the language cannot be forced to pass: these are the real chances.
        flight = launch(batch, source if mask_drafts else counted([turn], [turn]), [depth])
        assert batch.rows[0].matcher.consumed == batch.rows[0].tokens[3:]  # type: ignore[union-attr]
        [landing] = follow(batch, flight)
        assert not mask_drafts or landing.accepted == wanted
        assert_matchers_at_the_text(batch)
        assert_settled(batch)


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_a_round_cut_short_leaves_the_matcher_where_the_text_was_cut(keep: int) -> None:
    target = TableTarget()
    batch = open_batch(target, TableHead(target), HOT, [LANGUAGE])
    flight = launch(batch, ForcedSource([3]), [3])
    follow(batch, flight, [keep])
    assert len(batch.rows[0].tokens) == 3 + keep
    assert_matchers_at_the_text(batch)
    assert_settled(batch)


def test_a_discarded_round_leaves_no_trace_in_the_matcher() -> None:
    target = TableTarget()
    batch = open_batch(target, TableHead(target), HOT, [LANGUAGE])
    follow(batch, launch(batch, ForcedSource([1]), [2]))
    discard(batch, launch(batch, ForcedSource([2]), [3]))
    assert_matchers_at_the_text(batch)


@pytest.mark.parametrize("mask_drafts", [True, False])
@pytest.mark.parametrize("vocab", [None, [0, 1, 4], [4]], ids=["whole", "reduced", "outside"])
def test_rows_with_and_without_grammars_share_rounds(vocab: list[int] | None, mask_drafts: bool) -> None:
    """With [4] alone the head never has an allowed draft: rounds then give one token each."""
    target = TableTarget()
    grammars = [LANGUAGE, None, LANGUAGE, None]
    batch = open_batch(target, TableHead(target, vocab), HOT, grammars)
    batch.mask_drafts = mask_drafts
    passed = 0
    for turn, lengths in enumerate(
        [[3, 3, 3, 3], [0, 2, 4, 1], [2, 0, 0, 3], [0, 0, 0, 0], [1, 1, 4, 2]] * 3
    ):
        landings = follow(batch, launch(batch, counted([7, 8, 9, 10], [turn] * 4), lengths))
        passed += landings[0].accepted + landings[2].accepted
        assert_matchers_at_the_text(batch)
        assert_settled(batch)
    assert (passed == 0) == (vocab == [4])
    assert 4 in batch.rows[1].tokens[2:]


@pytest.mark.parametrize(
    "sampler", [SamplerSettings(0.0), replace(HOT, acceptance=COUPLED)], ids=["T0", "coupled"]
)
@pytest.mark.parametrize("mask_drafts", [True, False])
def test_a_rows_text_is_the_same_alone_and_beside_rows_without_a_grammar(
    sampler: SamplerSettings, mask_drafts: bool
) -> None:
    target = TableTarget()

    def text(grammars: Sequence[TableLanguage | None], depth: int) -> list[int]:
        batch = open_batch(target, TableHead(target, [0, 1, 2, 4]), sampler, grammars)
        batch.mask_drafts = mask_drafts
        turn = 0
        while len(batch.rows[0].tokens) < 33:
            positions = [len(row.tokens) for row in batch.rows]
            seeds = list(range(len(grammars)))
            follow(batch, launch(batch, counted(seeds, [turn] * len(seeds), positions), [depth] * len(seeds)))
            turn += 1
        return batch.rows[0].tokens[:33]

    plain = text([LANGUAGE], 0)
    assert all(
        text([LANGUAGE, None, LANGUAGE][:rows], depth) == plain for rows in (1, 3) for depth in (1, 2, 4)
    )


class FailingHead(TableHead):
    """Raises when asked for its third draft."""

    def extend(self, tokens: Array, state: Array, cache: list[object]) -> Array:  # type: ignore[override]
        if cache[0].lengths[0] > self.limit:  # type: ignore[attr-defined]
            raise ValueError("broken")
        return super().extend(tokens, state, cache)  # type: ignore[arg-type]

    limit = 0


def test_a_head_that_fails_while_drafting_leaves_masks_and_matcher_at_the_text() -> None:
    target = TableTarget()
    head = FailingHead(target)
    batch = open_batch(target, head, SamplerSettings(0.0), [LANGUAGE])
    head.limit = batch.head_cache[0].lengths[0] + 1
    [landing] = follow(batch, launch(batch, counted([0], [0]), [4]))
    assert (landing.fault, landing.drafted, len(landing.tokens)) == ("head_failed", 0, 1)
    allowed = np.where(LANGUAGE.start().mask(), target.logits_after(PROMPTS[0]), -np.inf)
    assert landing.tokens == [int(allowed.argmax())]
    assert_matchers_at_the_text(batch)


@pytest.mark.parametrize("mask_drafts", [True, False])
def test_drafts_past_a_text_that_may_only_end_are_masked_by_nothing(mask_drafts: bool) -> None:
    """Completing inside the drafts: the round goes on, and what follows is the decoder's to cut."""
    target = TableTarget()
    language = TableLanguage(moves=[{0: 1}, {3: 2}, {}], final=frozenset({2}))
    batch = open_batch(target, head_saying(target, [0, 3]), SamplerSettings(0.0), [language])
    batch.mask_drafts = mask_drafts
    [landing] = land(batch, launch(batch, ForcedSource([4]), [4]))
    assert landing.tokens[:2] == [0, 3]
    assert landing.accepted >= 2
    assert landing.tokens[2] == int(target.logits_after([*PROMPTS[0], 0, 3]).argmax())
    assert batch.rows[0].matcher == language.start()


def head_saying(target: TableTarget, drafts: Sequence[int]) -> TableHead:
    """A head whose first drafts after the first prompt are these."""
    head = TableHead(target)
    pairs = head.pairs_of(PROMPTS[0])
    for token in drafts:
        head.table[head.state_after(pairs)] = np.where(np.arange(5) == token, 9.0, 0.0)
        pairs = head.extended(pairs, token)
    head._table = mx.array(head.table, target.dtype)
    return head
