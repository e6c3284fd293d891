"""Laws on the few ids they keep say what laws over the whole vocabulary say, whatever stands beside a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.acceptance import block_chances, residual_law, token_chances
from mtplxd.engine.draft_vocab import DraftVocab
from mtplxd.engine.grouping import Grouping, take_rows
from mtplxd.engine.judging import Drafts, judge
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, SamplerSettings
from mtplxd.engine.row import Row
from mtplxd.engine.sampling import Law, draw, filter_rows, mass_at
from mtplxd.platform.mlx import mx
from support.laws import at_places, masses, whole
from support.ragged import counted
from support.reference_laws import reference_law

SIZE = 40
seeds = st.integers(0, 10**6)
samplers = st.builds(
    SamplerSettings,
    temperature=st.sampled_from([0.0, 0.37, 0.9, 1.6]),
    top_k=st.sampled_from([0, 1, 3, 11, 100]),
    top_p=st.sampled_from([0.137, 0.731, 0.9371, 1.0]),
    min_p=st.sampled_from([0.0, 0.0137, 0.213]),
)
cutting = samplers.filter(
    lambda sampler: sampler.greedy or sampler.top_k > 0 or sampler.top_p < 1 or sampler.min_p > 0
)


def logits_of(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(seeds, st.lists(cutting, min_size=1, max_size=6))
def test_rows_with_unlike_samplers_have_the_laws_of_their_equations(
    seed: int, given_samplers: list[SamplerSettings]
) -> None:
    logits = logits_of(seed, len(given_samplers), 2, SIZE)
    found = masses(filter_rows(mx.array(logits), given_samplers), SIZE)
    for row, sampler, laws in zip(logits, given_samplers, found, strict=True):
        for position, law in zip(row, laws, strict=True):
            expected = reference_law(position, sampler)
            assert np.abs(law - expected).max() <= 3e-6
            assert ((law > 0) == (expected > 0)).all()


@settings(deadline=None, max_examples=50, derandomize=True, database=None)
@given(seeds, st.lists(cutting, min_size=2, max_size=5))
def test_a_rows_law_is_bit_for_bit_the_one_it_has_alone(
    seed: int, given_samplers: list[SamplerSettings]
) -> None:
    logits = mx.array(logits_of(seed, len(given_samplers), 3, SIZE))
    together = filter_rows(logits, given_samplers)
    for b, sampler in enumerate(given_samplers):
        alone = filter_rows(logits[b : b + 1], [sampler])
        ids = mx.broadcast_to(mx.arange(SIZE)[:, None, None], (SIZE, 1, 3))
        for token in ids:
            there = mass_at(together.weights[b : b + 1], together.ids[b : b + 1], token)  # type: ignore[index]
            assert there.tolist() == mass_at(alone.weights, alone.ids, token).tolist()


@pytest.mark.parametrize(
    "sampler",
    [
        SamplerSettings(0.6, top_p=0.95),
        SamplerSettings(0.6, top_k=40, top_p=0.9),
        SamplerSettings(1.3, top_k=2000, top_p=0.6),
        SamplerSettings(1.0, min_p=0.02),
    ],
    ids=str,
)
def test_a_law_weighs_the_same_however_many_candidates_were_ranked(sampler: SamplerSettings) -> None:
    """What races and uniforms are applied to must not move when a neighbour needs more candidates."""
    numbers = logits_of(4, 3, 49_152) / 2
    numbers[:, ::1600] += 8
    logits = mx.array(numbers)
    laws = [filter_rows(logits, [sampler] * 3, limit=limit) for limit in (256, 700, None)]
    laws.append(filter_rows(logits, [sampler] * 3, full=True))
    assert all(law.sound.all().item() for law in laws)
    kept = [
        [
            (place if law.ids is None else law.ids[b, place].item(), law.weights[b, place].item())
            for place in np.flatnonzero(np.array(law.weights[b])).tolist()
        ]
        for law in laws
        for b in range(3)
    ]
    assert kept[:3] == kept[3:6] == kept[6:9] == kept[9:]
    assert all(len(ids) > 3 for ids in kept)


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(seeds, st.integers(1, 4))
def test_rules_over_the_places_of_p_equal_rules_over_all_ids(seed: int, depth: int) -> None:
    """q may have mass where p has none: no rule asks for it there."""
    rng = np.random.default_rng(seed)
    p = rng.random((2, depth + 1, SIZE)) * (rng.random((2, depth + 1, SIZE)) < 0.3)
    p[..., rng.integers(SIZE)] += 0.1
    q = rng.random((2, depth, SIZE)) * (rng.random((2, depth, SIZE)) < 0.4) + 1e-3
    p, q = p / p.sum(axis=-1, keepdims=True), q / q.sum(axis=-1, keepdims=True)
    drafts = rng.integers(0, SIZE, (2, depth)).astype(np.int32)
    lengths = mx.array(rng.integers(0, depth + 1, 2))
    everywhere = whole(mx.array(p, mx.float64), mx.array(q, mx.float64), drafts)
    ids = np.sort(np.argsort(-p, axis=-1)[..., : int((p > 0).sum(axis=-1).max())], axis=-1)
    few = at_places(everywhere, mx.array(ids.astype(np.int32)))
    chances = [np.array(token_chances(laws).pass_with) for laws in (few, everywhere)]
    assert np.array_equal(chances[0], chances[1])
    pairs = zip(block_chances(few, lengths), block_chances(everywhere, lengths), strict=True)
    assert all(np.allclose(np.array(a), np.array(b), rtol=0, atol=1e-14) for a, b in pairs)
    accepted = mx.array(rng.integers(0, depth + 1, 2)).astype(lengths.dtype)
    accepted = mx.minimum(accepted, lengths)
    weights = block_chances(everywhere, lengths).weights
    left, all_left = (np.array(residual_law(laws, weights, accepted, lengths)) for laws in (few, everywhere))
    spread = np.zeros_like(all_left)
    own = ids[np.arange(2), np.array(accepted)]
    np.put_along_axis(spread, own, left, axis=-1)
    assert np.array_equal(spread, all_left)


@settings(deadline=None, max_examples=50, derandomize=True, database=None)
@given(seeds, st.floats(0, 1, exclude_max=True, width=32))
def test_a_uniform_draws_the_id_it_draws_from_the_whole_law(seed: int, uniform: float) -> None:
    """The order of the ids is kept, and nothing between them has mass."""
    law = filter_rows(mx.array(logits_of(seed, 1, SIZE)), [SamplerSettings(1.3, top_k=9, top_p=0.93)])
    spread = Law(mx.put_along_axis(mx.zeros((1, SIZE)), law.ids, law.weights, axis=-1), None, law.sound)
    given_one = mx.array([uniform], mx.float32)
    assert draw(law, given_one).tolist() == draw(spread, given_one).tolist()


@pytest.mark.parametrize("vocab", [None, [3, 0, 17, 8, 25], list(range(SIZE))], ids=str)
def test_q_is_looked_up_by_id_and_is_nothing_outside_the_draft_vocabulary(vocab: list[int] | None) -> None:
    own = list(range(SIZE)) if vocab is None else vocab
    laws = np.random.default_rng(1).random((2, 3, len(own))).astype(np.float32)
    held = None if vocab is None else DraftVocab(mx.array(vocab, mx.int32), SIZE)
    zeros = mx.zeros((2, 3), mx.int32)
    drafts = Drafts(zeros, mx.array(laws), zeros[:, 0], zeros[:, 0] == 0, held)
    ids = np.random.default_rng(2).integers(0, SIZE, (2, 3, 12)).astype(np.int32)
    expected = np.zeros((2, 3, SIZE), np.float32)
    expected[..., own] = laws
    assert np.array_equal(np.array(drafts.masses_at(None, SIZE)), expected)
    assert np.array_equal(
        np.array(drafts.masses_at(mx.array(ids), SIZE)), np.take_along_axis(expected, ids, axis=-1)
    )


def judged(rows: list[Row], places: list[int], most: bool, **others: Any) -> list[list[Any]]:
    """What is judged of these rows of one set of logits and drafts, together."""
    count, depth = len(rows), 3
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 1.5, (count, depth + 1, SIZE)).astype(np.float32)
    laws = rng.random((count, depth, SIZE)).astype(np.float32)
    laws /= laws.sum(axis=-1, keepdims=True)
    ids = rng.integers(0, SIZE, (count, depth)).astype(np.int32)
    lengths = [b % (depth + 1) for b in range(count)]
    own = [rows[b] for b in places]
    at = mx.array(places)
    drafts = Drafts(
        mx.array(ids)[at],
        mx.array(laws)[at],
        mx.array(lengths)[at],
        mx.ones((count,), mx.bool_)[at],
        most=[lengths[b] for b in places] if most else None,
    )
    source = counted(places, [7] * len(places), [20] * len(places))
    found = judge(own, mx.array(logits)[at], drafts, source, full=False, **others)
    return [part.tolist() for part in found[:3]]


ROWS = [
    Row([1, 2], sampler, 3)
    for sampler in (
        SamplerSettings(0.7, top_p=0.9, acceptance=BLOCK),
        SamplerSettings(1.0, acceptance=TOKEN),
        SamplerSettings(0.9, top_k=5, acceptance=COUPLED),
        SamplerSettings(0.0),
        SamplerSettings(1.4, top_k=7, min_p=0.05, acceptance=TOKEN),
        SamplerSettings(1.1, acceptance=COUPLED),
        SamplerSettings(1.2, acceptance=BLOCK),
        SamplerSettings(0.8, top_p=0.7, acceptance=BLOCK),
    )
]


@pytest.mark.parametrize("most", [False, True], ids=["all positions", "positions that count"])
def test_each_row_is_judged_as_it_is_alone(most: bool) -> None:
    together = judged(ROWS, list(range(len(ROWS))), most)
    for b in range(len(ROWS)):
        alone = judged(ROWS, [b], most)
        assert [part[0] for part in alone] == [part[b] for part in together]


def test_skipping_positions_that_do_not_count_changes_nothing() -> None:
    every = list(range(len(ROWS)))
    assert judged(ROWS, every, most=True) == judged(ROWS, every, most=False)


def test_positions_that_do_not_count_are_not_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtplxd.engine import judging

    seen: list[int] = []

    def watched(logits: Any, *others: Any, **options: Any) -> Law:
        seen.append(int(np.prod(logits.shape[:-1])))
        return filter_rows(logits, *others, **options)

    monkeypatch.setattr(judging, "filter_rows", watched)
    rows = [replace_sampler(row, SamplerSettings(0.7, top_p=0.9)) for row in ROWS]
    judged(rows, list(range(len(rows))), most=True)
    assert seen == [sum(b % 4 + 1 for b in range(len(rows)))]


def replace_sampler(row: Row, sampler: SamplerSettings) -> Row:
    return Row(list(row.tokens), replace(sampler), row.depth)


@settings(deadline=None, max_examples=50, derandomize=True, database=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_rows_taken_out_by_kind_come_back_in_their_order(kinds: list[str]) -> None:
    values = mx.arange(len(kinds)) * 10
    grouping = Grouping(kinds)
    parts = [take_rows(values, group) for group in grouping.groups]
    for group, part in zip(grouping.groups, parts, strict=True):
        assert len({kinds[place] for place in group}) == 1
        assert part.tolist() == [10 * place for place in group]
    assert grouping.join(parts).tolist() == values.tolist()
    assert grouping.single == (len(set(kinds)) == 1)


@pytest.mark.parametrize("temperature", [0.5, 0.6, 0.8])
def test_a_share_of_a_vocabulary_of_49k_ends_where_float64_ends_it(temperature: float) -> None:
    """A sum that adds one number after the other is wrong by 1e-4 here, and cuts several ids too many."""
    sampler = SamplerSettings(temperature, top_p=0.95)
    logits = logits_of(6, 40, 49_152)
    logits[:, :20] += np.random.default_rng(7).random((40, 20)) * 8 + 4
    law = filter_rows(mx.array(logits), [sampler] * 40, full=True)
    missed = 0
    for row, found in zip(logits, masses(law, 49_152), strict=True):
        expected = reference_law(row, sampler)
        other = (found > 0) != (expected > 0)
        assert other.sum() <= 1
        missed += bool(other.any())
        if not other.any():
            assert np.abs(found - expected).max() <= 3e-6
    assert missed <= 4
