"""The proof of the law has teeth: each wrong rule, put in the place of the real function, is far outside its bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mtplxd.engine import drafting, judging, sampling
from mtplxd.engine import round as rounds
from mtplxd.engine.acceptance import Chances, block_chances, residual_law, token_chances
from mtplxd.engine.request import BLOCK, TOKEN, SamplerSettings
from mtplxd.engine.sampling import filter_logits, filter_rows, scatter_vocab
from mtplxd.platform.mlx import mx
from support.enumeration import Enumeration, Problem
from support.exact_float64 import use_exact_exponentials
from support.proof_cases import fixed, plain_law
from support.reference_laws import total_variation
from support.table_model import TableHead, TableTarget

CLEARLY = 1e-3
PROMPT = (1, 3, 2)
SAMPLER = SamplerSettings(temperature=0.8, top_k=4, top_p=0.8, min_p=0.06)
UNFILTERED = SamplerSettings(temperature=1.2)
"""Where r falls below 1 and the draft behind it still earns something."""

Patch = Callable[[pytest.MonkeyPatch], None]
real_judge, real_draw_drafts = judging.judge, judging.draw_drafts


def distance(depths: tuple[int, ...] = (2,), rule: str = TOKEN, sampler: SamplerSettings = SAMPLER) -> float:
    """Total variation of the law of three tokens from plain decoding's, the largest of rows of these depths."""
    target = TableTarget(dtype=mx.float64, seed=2)
    model = Enumeration(target, TableHead(target, (0, 2, 3)), horizon=3, prune=False, checked=False)
    given = replace(sampler, acceptance=rule)
    problems = [Problem(PROMPT, given, fixed(depth)) for depth in depths]
    expected = plain_law(target, problems[0], 3)
    return max(total_variation(law, expected) for law in model.text_laws(problems))


def wrong_q(patch: pytest.MonkeyPatch) -> None:
    def draw_drafts(rows: Any, logits: Any, step: int, source: Any, vocab: Any, size: int) -> Any:
        ids, _ = real_draw_drafts(rows, logits, step, source, vocab, size)
        other = filter_rows(logits / 2, [row.sampler for row in rows]).p
        return ids, scatter_vocab(other, vocab, size)

    patch.setattr(drafting, "draw_drafts", draw_drafts)


def missing_residual(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "residual_law", lambda p, q, *others: residual_law(p, q * 0, *others))


def laws_of_the_position_before(patch: pytest.MonkeyPatch) -> None:
    def judge(rows: Any, logits: Any, *others: Any, full: bool) -> Any:
        stale = mx.concatenate([logits[:, :-1], logits[:, -2:-1]], axis=1)
        return real_judge(rows, stale, *others, full=full)

    patch.setattr(rounds, "judge", judge)


def top_p_before_top_k(patch: pytest.MonkeyPatch) -> None:
    def swapped(logits: Any, sampler: SamplerSettings, *, full: bool, **_: Any) -> Any:
        first = filter_logits(logits, replace(sampler, top_k=0, min_p=0.0), full=full)
        second = replace(sampler, temperature=1.0, top_p=1.0)
        return filter_logits(mx.log(first.p), second, full=full)

    patch.setattr(sampling, "filter_logits", swapped)


def temperature_last(patch: pytest.MonkeyPatch) -> None:
    def swapped(logits: Any, sampler: SamplerSettings, *, full: bool, **_: Any) -> Any:
        first = filter_logits(logits, replace(sampler, temperature=1.0), full=full)
        return filter_logits(mx.log(first.p), SamplerSettings(temperature=sampler.temperature), full=full)

    patch.setattr(sampling, "filter_logits", swapped)


def with_chances(patch: pytest.MonkeyPatch, change: Callable[..., Chances]) -> None:
    """Both rules' chances are changed: `change` gets p, q, drafts and the real function of p, q, drafts."""

    def of_block(p: Any, q: Any, drafts: Any, lengths: Any) -> Chances:
        return change(p, q, drafts, lambda p, q, drafts: block_chances(p, q, drafts, lengths))

    patch.setattr(judging, "token_chances", lambda p, q, drafts: change(p, q, drafts, token_chances))
    patch.setattr(judging, "block_chances", of_block)


def inverted_acceptance(patch: pytest.MonkeyPatch) -> None:
    def inverted(p: Any, q: Any, drafts: Any, real: Any) -> Chances:
        found = real(p, q, drafts)
        return Chances(1 - found.pass_with, found.weights)

    with_chances(patch, inverted)


def q_taken_as_one(patch: pytest.MonkeyPatch) -> None:
    with_chances(patch, lambda p, q, drafts, real: real(p, mx.ones_like(q), drafts))


def laws_not_mapped_back(patch: pytest.MonkeyPatch) -> None:
    def left_in_place(law: Any, _vocab: Any, size: int) -> Any:
        return mx.pad(law, [(0, 0), (0, size - law.shape[1])])

    patch.setattr(judging, "scatter_vocab", left_in_place)


def ids_not_mapped_back(patch: pytest.MonkeyPatch) -> None:
    def draw_drafts(rows: Any, logits: Any, step: int, source: Any, vocab: Any, size: int) -> Any:
        ids, law = real_draw_drafts(rows, logits, step, source, vocab, size)
        return mx.argmax(vocab[None] == ids[:, None], axis=1).astype(mx.int32), law

    patch.setattr(drafting, "draw_drafts", draw_drafts)


def bonus_of_the_position_before(patch: pytest.MonkeyPatch) -> None:
    def shifted(p: Any, q: Any, weights: Any, accepted: Any, lengths: Any) -> Any:
        late = mx.where(accepted == lengths, mx.maximum(accepted - 1, 0), accepted)
        return residual_law(p, mx.where((accepted == lengths)[:, None, None], 0, q), weights, late, lengths)

    patch.setattr(judging, "residual_law", shifted)


def bonus_of_another_row(patch: pytest.MonkeyPatch) -> None:
    def of_first_row(p: Any, *others: Any) -> Any:
        return residual_law(mx.broadcast_to(p[:1], p.shape), *others)

    patch.setattr(judging, "residual_law", of_first_row)


MUTANTS: dict[str, Patch] = {
    patch.__name__: patch
    for patch in (
        wrong_q,
        missing_residual,
        laws_of_the_position_before,
        top_p_before_top_k,
        temperature_last,
        inverted_acceptance,
        q_taken_as_one,
        laws_not_mapped_back,
        ids_not_mapped_back,
        bonus_of_the_position_before,
        bonus_of_another_row,
    )
}


@pytest.fixture(autouse=True)
def _exact_exponentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_exponentials(monkeypatch)


@pytest.mark.parametrize("rule", [TOKEN, BLOCK])
def test_the_real_functions_pass_the_measure_the_mutants_fail(rule: str) -> None:
    assert distance((2, 1), rule) <= 1e-9


@pytest.mark.parametrize("rule", [TOKEN, BLOCK])
@pytest.mark.parametrize("name", MUTANTS)
def test_the_proof_fails_for(name: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert distance(rule=rule) > CLEARLY


@pytest.mark.parametrize("rule", [TOKEN, BLOCK])
def test_the_proof_fails_for_a_short_row_that_counts_its_neighbours_drafts(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts_all(p: Any, q: Any, weights: Any, accepted: Any, lengths: Any) -> Any:
        return residual_law(p, q, weights, accepted, mx.full(lengths.shape, q.shape[1], lengths.dtype))

    monkeypatch.setattr(judging, "residual_law", counts_all)
    assert distance((2, 1), rule) > CLEARLY


def test_clipping_the_ratio_at_one_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(p: Any, q: Any, drafts: Any) -> Chances:
        places = drafts[..., None]
        ratio = mx.take_along_axis(p[:, :-1], places, -1) / mx.take_along_axis(q, places, -1)
        return Chances(mx.minimum(ratio[..., 0], 1.0), mx.ones(p.shape[:2], p.dtype))

    monkeypatch.setattr(judging, "token_chances", unclipped)
    assert distance() <= 1e-9


def block_with_the_residual_of_token(patch: pytest.MonkeyPatch) -> None:
    def unweighted(p: Any, q: Any, drafts: Any, lengths: Any) -> Chances:
        found = block_chances(p, q, drafts, lengths)
        return Chances(found.pass_with, mx.ones_like(found.weights))

    patch.setattr(judging, "block_chances", unweighted)


def block_that_counts_to_the_first_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "count_to_last_pass", judging.count_before_failure)


def block_with_the_chances_of_token(patch: pytest.MonkeyPatch) -> None:
    def as_token(p: Any, q: Any, drafts: Any, lengths: Any) -> Chances:
        return Chances(token_chances(p, q, drafts).pass_with, block_chances(p, q, drafts, lengths).weights)

    patch.setattr(judging, "block_chances", as_token)


def block_without_its_last_position(patch: pytest.MonkeyPatch) -> None:
    def inner_everywhere(p: Any, q: Any, drafts: Any, lengths: Any) -> Chances:
        return block_chances(p, q, drafts, mx.full(lengths.shape, q.shape[1], lengths.dtype))

    patch.setattr(judging, "block_chances", inner_everywhere)


@pytest.mark.parametrize(
    "mutant",
    [
        block_with_the_residual_of_token,
        block_that_counts_to_the_first_failure,
        block_with_the_chances_of_token,
    ],
)
def test_the_proof_of_block_fails_for(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    assert distance(rule=BLOCK, sampler=UNFILTERED) <= 1e-9
    mutant(monkeypatch)
    assert distance(rule=BLOCK, sampler=UNFILTERED) > CLEARLY


def test_the_proof_fails_for_block_that_judges_a_short_rows_last_draft_like_an_inner_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block_without_its_last_position(monkeypatch)
    assert distance((2, 1), BLOCK) > CLEARLY


def test_a_whole_rows_last_draft_may_be_judged_like_an_inner_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no draft behind it, S = r, and S / (S + 1 − r) is r itself."""
    block_without_its_last_position(monkeypatch)
    assert distance((2,), BLOCK) <= 1e-9
