"""After every round, whatever was accepted, both caches hold the committed text, alone and in ragged batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from mtplxd.engine import row as rows
from mtplxd.engine.batch import Batch
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import commit, discard, land, launch
from mtplxd.families.caches import slots
from mtplxd.families.protocols import Head, Target
from mtplxd.platform.mlx import mx
from support.ragged import ForcedSource, assert_settled, counted, open_ragged, play_round, poison
from support.table_model import TableHead, TableTarget, read_slots

SAMPLER = SamplerSettings(temperature=1.0)
GREEDY = SamplerSettings(temperature=0.0)
RAGGED = [[7], [5, 9, 11, 200, 31, 4, 8], [12, 3, 77, 150, 42, 9, 9, 10, 11, 12, 13, 14, 15, 16]]

Model = tuple[Target, Head]


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_one_row_holds_its_text_after_any_accepted_length(model: Model, depth: int) -> None:
    batch = open_ragged(*model, [[5, 9, 11, 200]], SAMPLER)
    for turn, passing in enumerate([*range(depth + 1), *reversed(range(depth + 1))]):
        before = len(batch.rows[0].tokens)
        play_round(batch, [depth], [passing], seed=turn)
        assert len(batch.rows[0].tokens) == before + passing + 1
        assert_settled(batch)


def test_ragged_rows_of_unequal_depth_and_acceptance_hold_their_texts(model: Model) -> None:
    batch = open_ragged(*model, RAGGED, SAMPLER, pending=2)
    plays = [
        ([3, 3, 3], [0, 2, 3]),
        ([2, 0, 4], [2, 0, 1]),
        ([0, 0, 0], [0, 0, 0]),
        ([1, 3, 0], [1, 0, 0]),
        ([4, 4, 4], [4, 4, 4]),
        ([0, 1, 2], [0, 0, 2]),
    ]
    for turn, (lengths, passing) in enumerate(plays):
        before = [len(row.tokens) for row in batch.rows]
        allowed = [length if row.pending else 0 for length, row in zip(lengths, batch.rows, strict=True)]
        play_round(batch, lengths, passing, seed=turn)
        made = [len(row.tokens) - count for row, count in zip(batch.rows, before, strict=True)]
        assert made == [min(some, most) + 1 for some, most in zip(passing, allowed, strict=True)]
        assert_settled(batch)


def test_a_table_cache_remembers_the_ids_themselves() -> None:
    target = TableTarget()
    batch = open_ragged(target, TableHead(target), [[1, 2, 3]], SAMPLER)
    play_round(batch, [3], [1])
    head = batch.head
    assert isinstance(head, TableHead)
    tokens = batch.rows[0].tokens
    assert read_slots(batch.cache[0]) == tokens[:-1]
    assert read_slots(batch.head_cache[0]) == head.pairs_of(tokens)[: batch.head_cache[0].lengths[0]]


def spoiled_run(model: Model, prompts: Sequence[Sequence[int]], value: float | None) -> list[list[int]]:
    batch = open_ragged(*model, prompts, SAMPLER)
    for turn in range(6):
        if value is not None:
            poison([*batch.cache, *batch.head_cache], value)
        depth = (3, 0, 2, 4, 0, 1)[turn]
        flight = play_round(
            batch, [depth] * len(prompts), [(turn + b) % 4 for b in range(len(prompts))], seed=turn
        )
        assert np.isfinite(np.array(flight.logits)).all()
    return [row.tokens for row in batch.rows]


def test_nan_behind_a_rows_length_never_changes_its_text(model: Model) -> None:
    prompt = RAGGED[1:2]
    assert spoiled_run(model, prompt, float("nan")) == spoiled_run(model, prompt, None)


def test_rubbish_behind_the_lengths_of_ragged_rows_never_changes_their_texts(model: Model) -> None:
    assert spoiled_run(model, RAGGED, 1e4) == spoiled_run(model, RAGGED, None)


def test_rows_of_a_batch_get_the_texts_they_get_alone(model: Model) -> None:
    def texts(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        batch = open_ragged(*model, prompts, GREEDY)
        while min(len(row.tokens) for row in batch.rows) < 40:
            play_round(batch, [3] * len(prompts), [0] * len(prompts))
        return [row.tokens[:40] for row in batch.rows]

    assert texts(RAGGED) == [texts([prompt])[0] for prompt in RAGGED]


def test_rows_of_a_batch_draft_what_they_draft_alone(model: Model) -> None:
    def drafts(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        batch = open_ragged(*model, prompts, GREEDY, pending=3)
        return launch(batch, ForcedSource([0] * len(prompts)), [4] * len(prompts)).drafts.ids.tolist()

    prompts = [[8, 90], *RAGGED[1:]]
    assert drafts(prompts) == [drafts([prompt])[0] for prompt in prompts]


def test_rounds_at_depth_0_let_pairs_wait_and_the_next_draft_absorbs_them(model: Model) -> None:
    batch = open_ragged(*model, RAGGED[1:2], SAMPLER)
    for turn, (depth, waiting) in enumerate([(0, 2), (0, 3), (0, 4), (2, 3), (0, 4), (1, 2)]):
        play_round(batch, [depth], [2], seed=turn)
        pending = batch.rows[0].pending
        assert pending is not None
        assert len(pending.tokens) == waiting
        assert_settled(batch)


def test_past_the_limit_old_pairs_go_and_the_heads_history_restarts(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PENDING_LIMIT", 5)
    batch = open_ragged(*model, RAGGED[1:], SAMPLER)
    play_round(batch, [3, 2], [3, 1])
    for turn in range(11):
        play_round(batch, [0, 0], [0, 0], seed=turn)
        assert_settled(batch)
    for row, lengths in zip(batch.rows, batch.head_cache[0].lengths, strict=True):
        assert row.pending is not None
        assert (lengths, len(row.pending.tokens)) == (0, 5)
        assert row.dropped_pairs == len(row.tokens) - 1 - 5
    for turn in range(3):
        play_round(batch, [3, 2], [turn, 2], seed=turn)
        assert_settled(batch)


def test_no_more_than_512_pairs_ever_wait() -> None:
    target = TableTarget()
    batch = open_ragged(target, TableHead(target), [[1, 2, 3]], SAMPLER)
    for turn in range(530):
        play_round(batch, [0], [0], seed=turn)
    pending = batch.rows[0].pending
    assert pending is not None
    assert len(pending.tokens) == 512
    play_round(batch, [3], [2])
    assert_settled(batch)


def test_a_discarded_round_leaves_no_trace(model: Model) -> None:
    batch = open_ragged(*model, RAGGED, SAMPLER)
    lengths = [list(layer.lengths) for layer in (*batch.cache, *batch.head_cache)]
    flight = launch(batch, counted([1, 2, 3], [0, 0, 0]), [0, 0, 0])
    ahead = launch(batch, counted([1, 2, 3], [1, 1, 1]), [0, 0, 0], flight.judgement.token)
    discard(batch, ahead)
    discard(batch, flight)
    assert [list(layer.lengths) for layer in (*batch.cache, *batch.head_cache)] == lengths
    assert_settled(batch)


@pytest.mark.parametrize("kept", [1, 2, 3, 4])
def test_keeping_a_part_of_a_round_ends_both_caches_and_the_counts_with_it(model: Model, kept: int) -> None:
    batch = open_ragged(*model, RAGGED[1:2], SAMPLER)
    flight = launch(batch, ForcedSource([3]), [3])
    landings = land(batch, flight)
    commit(batch, flight, landings, [kept])
    assert batch.rows[0].tokens == RAGGED[1] + landings[0].tokens[:kept]
    assert_settled(batch)
    decided = min(kept, 3)
    counts = batch.rows[0].counts
    assert (counts.rounds, counts.drafted) == (1, decided)
    assert counts.judged == counts.accepted == [1] * decided + [0] * (3 - decided)


def test_a_rejected_position_is_judged_and_those_behind_it_count_as_drafted(model: Model) -> None:
    batch = open_ragged(*model, RAGGED[1:2], SAMPLER)
    for passing in (1, 3, 0):
        play_round(batch, [3], [passing])
    counts = batch.rows[0].counts
    assert (counts.rounds, counts.drafted) == (3, 9)
    assert (counts.judged, counts.accepted) == ([3, 3, 3], [2, 1, 1])


@pytest.mark.parametrize("room", range(-4, 3))
def test_texts_do_not_notice_where_capacity_grows(
    model: Model, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = [(7 * place) % 250 + 3 for place in range(slots.STEP + room)]

    def texts() -> list[list[int]]:
        found = []
        for prompts in ([prompt], [prompt, prompt[:-1], prompt[3:]]):
            batch = open_ragged(*model, prompts, GREEDY)
            assert batch.cache[0].keys.shape[2] % slots.STEP == 0
            for _ in range(3):
                play_round(batch, [3] * len(prompts), [0] * len(prompts))
            found += [row.tokens for row in batch.rows]
        return found

    grown = texts()
    monkeypatch.setattr(slots, "STEP", 1024)
    assert texts() == grown


def test_an_unread_position_of_a_short_row_never_counts_as_non_finite_for_others() -> None:
    target = TableTarget()
    head = TableHead(target)
    batch = open_ragged(target, head, [[1, 2, 3], [4, 0, 1]], SAMPLER)
    target.poison([4, 0, 1])
    flight = launch(batch, counted([1, 2], [0, 0]), [2, 2])
    landings = land(batch, flight)
    assert [landing.finite for landing in landings] == [True, False]
    kept = [len(landings[0].tokens), 0]
    commit(batch, flight, landings, kept)
    assert len(batch.rows[1].tokens) == 3
    assert all(token < 5 for token in batch.rows[0].tokens)
    assert batch.cache[0].lengths == [len(row.tokens) - 1 for row in batch.rows]


def test_a_head_that_breaks_in_one_row_turns_that_row_to_depth_0_only() -> None:
    target = TableTarget()
    head = TableHead(target)
    batch: Batch = open_ragged(target, head, [[1, 2, 3], [4, 0, 1]], SAMPLER)
    broken = head.state_after(head.pairs_of([4, 0, 1]))
    head.table[broken] = np.nan
    head._table = mx.array(head.table, target.dtype)
    for row in batch.rows:
        row.depth = 2
    flight = launch(batch, counted([1, 2], [0, 0]), [2, 2])
    landings = land(batch, flight)
    commit(batch, flight, landings, [len(landing.tokens) for landing in landings])
    assert [landing.drafted for landing in landings] == [2, 0]
    assert [row.depth for row in batch.rows] == [2, 0]
    assert [row.degraded for row in batch.rows] == [[], ["head_non_finite"]]
    assert_settled(batch)
