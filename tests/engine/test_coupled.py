"""Coupled decoding: a seed means one text, whatever head, depth, draft vocabulary or draft sampler is at work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine import drafting, judging
from mtplxd.engine.acceptance import count_before_failure, equal_passed, race, token_at
from mtplxd.engine.request import COUPLED, DraftSampler, SamplerSettings
from mtplxd.engine.round import commit, land, launch
from mtplxd.engine.uniforms import UniformSupply
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import mx
from support.enumeration import Problem
from support.listening import ask, decode
from support.proof_cases import fixed, plain_law
from support.ragged import counted, open_ragged
from support.table_decoding import IDS, FailingHead, coupled_text, race_times, table_model
from support.table_matcher import TableLanguage
from support.table_model import TableHead, TableTarget

LANGUAGE = TableLanguage(
    moves=tuple(
        {token: (token * 7 + state) % 5 for token in range(state % 2, IDS, 1 + state % 3)}
        for state in range(5)
    ),
    final=frozenset(),
    size=IDS,
)

real_race = judging._race

GOLDEN_UNIFORMS = [0.5217856764793396, 0.27019619941711426, 0.07174307107925415, 0.876000165939331]
GOLDEN_RACE = [0.7035616636276245, 0.689746618270874, 1.3385130167007446, 1.0425934791564941]
GOLDEN_LAST = [1.1874423027038574, 0.45927488803863525, 2.03741192817688, 1.8327254056930542]


def test_any_laws_and_noise_emit_the_targets_own_winners() -> None:
    """10,000 rows of random p, q, noise, depth and draft length against argmax(log p + g) in numpy."""
    rng = np.random.default_rng(0)
    accepted_some = 0
    for _ in range(100):
        rows, depth, size = 100, int(rng.integers(1, 6)), int(rng.integers(1, 13))
        p, q = (sparse_laws(rng, (rows, count, size)) for count in (depth + 1, depth))
        alike = rng.random((rows, depth, 1)) < 0.4
        q = np.where(alike, p[:, :depth], q)
        times = rng.exponential(size=(rows, depth + 1, size))
        lengths = rng.integers(0, depth + 1, rows)
        with np.errstate(divide="ignore"):
            winners = np.argmax(np.log(p) - np.log(times), axis=-1)
            drafts = np.argmax(np.log(q) - np.log(times[:, :depth]), axis=-1)
        drafted = race(mx.array(q, mx.float64), mx.array(times[:, :depth], mx.float64))
        assert np.array_equal(np.array(drafted), drafts)
        best = race(mx.array(p, mx.float64), mx.array(times, mx.float64))
        accepted = count_before_failure(equal_passed(best, drafted), mx.array(lengths))
        token = token_at(best, accepted)
        for b, (count, last) in enumerate(zip(accepted.tolist(), token.tolist(), strict=True)):
            assert [*drafts[b, :count], last] == list(winners[b, : count + 1])
            assert count == lengths[b] or drafts[b, count] != winners[b, count]
            accepted_some += count > 0
    assert accepted_some > 2000


def sparse_laws(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    weights = rng.random(shape) ** 3 * (rng.random(shape) < 0.7) + 1e-9
    return weights / weights.sum(axis=-1, keepdims=True)


samplers = st.builds(
    SamplerSettings,
    temperature=st.sampled_from([0.37, 0.8, 1.3]),
    top_k=st.sampled_from([0, 3, 9]),
    top_p=st.sampled_from([0.731, 0.9371, 1.0]),
    min_p=st.sampled_from([0.0, 0.0137, 0.113]),
    seed=st.integers(0, 2**64 - 1),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, -0.375, 0.25]),
    logit_bias=st.sampled_from([(), ((1, 2.0), (17, -3.0))]),
    acceptance=st.just(COUPLED),
    draft=st.builds(
        DraftSampler,
        temperature=st.sampled_from([None, 0.0, 0.5, 2.0]),
        top_k=st.sampled_from([None, 1, 6]),
    ),
)
vocabularies = st.sampled_from([None, range(0, IDS, 2), [3], range(5, IDS)])


def heads_for(target: TableTarget, vocab: Sequence[int] | None, kind: str) -> object:
    if kind == "own":  # drafts what the target itself would say after the same history's hash
        return TableHead(target, vocab, seed=5, spread=4.0)
    if kind == "broken":
        return TableHead(target, vocab, seed=5, gaps=0.1)
    if kind == "random":
        return TableHead(target, vocab, seed=5)
    return FailingHead(TableHead(target, vocab, seed=5), kind, 5)


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(
    sampler=samplers,
    vocab=vocabularies,
    kind=st.sampled_from(["random", "own", "broken", "absorb", "extend", "logits"]),
    masked=st.booleans(),
    depth=st.integers(1, 4),
    prompt=st.lists(st.integers(3, IDS - 1), min_size=1, max_size=6),
)
def test_no_head_depth_or_draft_setting_changes_the_text(
    tiny_model: LoadedModel,
    sampler: SamplerSettings,
    vocab: Sequence[int] | None,
    kind: str,
    masked: bool,
    depth: int,
    prompt: list[int],
) -> None:
    target = TableTarget(IDS, seed=2, spread=2.5)
    grammar: Any = LANGUAGE if masked else None
    expected = coupled_text(target, prompt, sampler, 14, grammar)
    for drafts in (0, depth):
        model = table_model(tiny_model.tokenizer, target, heads_for(target, vocab, kind))
        request = ask(
            model, prompt, depth=drafts, sampler=sampler, grammar=grammar, max_tokens=14, ignore_eos=True
        )
        assert decode(request)[1].tokens == expected


class Texts:
    """Coupled texts of one table model through the decoder."""

    def __init__(self, tokenizer: Any) -> None:
        self.target = TableTarget(IDS, seed=4, spread=2.0)
        self.head = TableHead(self.target, seed=5)
        self.head.table = self.target.table  # same states or not: some drafts are right
        self.model = table_model(tokenizer, self.target, self.head)
        self.accepted = 0

    def all(self, depth: int) -> list[list[int]]:
        found, self.accepted = [], 0
        for seed in range(12):
            sampler = SamplerSettings(0.9, seed=seed, acceptance=COUPLED)
            request = ask(self.model, [5, 6], depth=depth, sampler=sampler, max_tokens=20, ignore_eos=True)
            decoder, listener = decode(request)
            found.append(listener.tokens)
            self.accepted += sum(decoder.row.counts.accepted)
        return found


def test_a_round_that_takes_another_positions_race_makes_another_text(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = Texts(tiny_model.tokenizer)
    plain = texts.all(0)
    assert texts.all(3) == plain

    def one_for_all(law: Any, times: Any) -> Any:
        return real_race(law, mx.repeat(times[:, :1], times.shape[1], axis=1) if times.ndim == 3 else times)

    monkeypatch.setattr(judging, "_race", one_for_all)
    assert texts.all(0) == plain
    assert texts.all(3) != plain


def test_drafts_of_another_positions_race_cost_acceptance_and_no_text(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = Texts(tiny_model.tokenizer)
    plain = texts.all(3)
    accepted = texts.accepted

    class Shifted:
        def __init__(self, source: Any) -> None:
            self._source = source

        def races(self, begin: int, count: int, size: int) -> Any:
            return self._source.races(begin + 500, count, size)

    def draw_drafts(rows: Any, logits: Any, step: int, source: Any, vocab: Any, size: int) -> Any:
        return judging.draw_drafts(rows, logits, step, Shifted(source), vocab, size)

    monkeypatch.setattr(drafting, "draw_drafts", draw_drafts)
    assert texts.all(3) == plain
    assert texts.accepted < accepted


def test_over_many_seeds_a_text_has_the_targets_law() -> None:
    target = TableTarget(seed=6)
    head = TableHead(target, (0, 2, 3), seed=7)
    sampler = SamplerSettings(1.2, top_k=4, acceptance=COUPLED)
    counts, rows = np.zeros((5, 5)), 500
    for begin in range(0, 10 * rows, rows):
        batch = open_ragged(target, head, [[1, 3, 2]] * rows, sampler)
        while min(len(row.tokens) for row in batch.rows) < 5:
            positions = [len(row.tokens) for row in batch.rows]
            source = counted(range(begin, begin + rows), [0] * rows, positions)
            flight = launch(batch, source, [2] * rows)
            landings = land(batch, flight)
            commit(batch, flight, landings, [len(landing.tokens) for landing in landings])
        for row in batch.rows:
            counts[tuple(row.tokens[3:5])] += 1
    expected = plain_law(target, Problem((1, 3, 2), sampler, fixed(0)), 2) * counts.sum()
    possible = expected > 0
    assert not counts[~possible].any()
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - 1
    assert expected[possible].min() > 5
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)


def test_races_and_uniforms_of_a_seed_never_change() -> None:
    """Golden values: a seed given today means the same text in every later version."""
    assert UniformSupply(7).uniforms(3, 4).tolist() == GOLDEN_UNIFORMS
    assert UniformSupply(7).race(11, 300)[:4].tolist() == GOLDEN_RACE
    assert UniformSupply(2**64 - 1).race(0, 4).tolist() == GOLDEN_LAST


@pytest.mark.parametrize("seed", [0, 12345, 2**64 - 1])
def test_a_race_is_a_function_of_seed_and_position_alone(seed: int) -> None:
    supply = UniformSupply(seed)
    for position in (9, 2, 40, 9, 3, 2):
        supply.uniforms(position, 9)
        assert np.array_equal(np.array(supply.race(position, 50)), race_times(seed, position, 50))
    many = UniformSupply(seed)
    for position in range(100):
        many.race(position, 5)
    assert np.array_equal(np.array(many.race(2, 50)), np.array(supply.race(2, 50)))
    first = [supply.race(position, 50).tolist() for position in range(6)]
    assert all(a != b for a, b in pairwise(first))


def test_a_rounds_races_begin_at_each_rows_own_position() -> None:
    source = counted([3, 4], [0, 7], [20, 5])
    found = np.array(source.races(1, 2, 6))
    expected = [[race_times(3, 21, 6), race_times(3, 22, 6)], [race_times(4, 6, 6), race_times(4, 7, 6)]]
    assert np.array_equal(found, expected)


def test_times_are_above_zero_and_exponential() -> None:
    times = np.array(UniformSupply(1).race(0, 200_000))
    assert times.min() > 0
    assert np.isfinite(times).all()
    assert abs(times.mean() - 1) < 0.01
    assert abs((times > 1).mean() - np.exp(-1)) < 0.005


def test_more_uniforms_never_change_the_first() -> None:
    few, many = UniformSupply(5), UniformSupply(5)
    assert few.uniforms(2, 3).tolist() == many.uniforms(2, 40).tolist()[:3]


def test_a_temperature_of_zero_is_greedy_under_coupled_too(tiny_model: LoadedModel) -> None:
    request = ask(tiny_model, [5, 6, 7], max_tokens=12, ignore_eos=True)
    plain = decode(request)[1].tokens
    for depth in (0, 3):
        sampler = replace(request.sampler, acceptance=COUPLED, seed=9)
        again = ask(tiny_model, [5, 6, 7], max_tokens=12, ignore_eos=True, depth=depth, sampler=sampler)
        assert decode(again)[1].tokens == plain
