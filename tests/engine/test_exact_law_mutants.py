"""The proof of the law has teeth: each wrong rule, put in the place of the real function, is far outside its bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from mtplxd.engine import drafting, judging
from mtplxd.engine import round as rounds
from mtplxd.engine.acceptance import Chances, Laws, block_chances, residual_law, token_chances
from mtplxd.engine.draft_vocab import DraftVocab
from mtplxd.engine.request import BLOCK, TOKEN, SamplerSettings
from mtplxd.engine.sampling import Law, filter_rows, scatter
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
        other = filter_rows(logits / 2, [row.sampler for row in rows])
        return ids, scatter(other.p, other.ids, logits.shape[-1])

    patch.setattr(drafting, "draw_drafts", draw_drafts)


def missing_residual(patch: pytest.MonkeyPatch) -> None:
    def whole(laws: Laws, *others: Any) -> Any:
        return residual_law(laws._replace(q=laws.q * 0), *others)

    patch.setattr(judging, "residual_law", whole)


def laws_of_the_position_before(patch: pytest.MonkeyPatch) -> None:
    def judge(rows: Any, logits: Any, *others: Any, full: bool) -> Any:
        stale = mx.concatenate([logits[:, :-1], logits[:, -2:-1]], axis=1)
        return real_judge(rows, stale, *others, full=full)

    patch.setattr(rounds, "judge", judge)


def log_law(law: Law, logits: Any) -> Any:
    """Logits that a law would come from."""
    return mx.log(scatter(law.p, law.ids, logits.shape[-1]))


def top_p_before_top_k(patch: pytest.MonkeyPatch) -> None:
    def swapped(logits: Any, samplers: Sequence[SamplerSettings], **options: Any) -> Law:
        first = [replace(sampler, top_k=0, min_p=0.0) for sampler in samplers]
        second = [replace(sampler, temperature=1.0, top_p=1.0) for sampler in samplers]
        return filter_rows(log_law(filter_rows(logits, first, **options), logits), second, **options)

    patch.setattr(judging, "filter_rows", swapped)


def temperature_last(patch: pytest.MonkeyPatch) -> None:
    def swapped(logits: Any, samplers: Sequence[SamplerSettings], **options: Any) -> Law:
        first = [replace(sampler, temperature=1.0) for sampler in samplers]
        second = [SamplerSettings(temperature=sampler.temperature) for sampler in samplers]
        return filter_rows(log_law(filter_rows(logits, first, **options), logits), second, **options)

    patch.setattr(judging, "filter_rows", swapped)


def with_chances(patch: pytest.MonkeyPatch, change: Callable[..., Chances]) -> None:
    """Both rules' chances are changed: `change` gets the laws and the real function of them."""

    def of_block(laws: Laws, lengths: Any) -> Chances:
        return change(laws, lambda laws: block_chances(laws, lengths))

    patch.setattr(judging, "token_chances", lambda laws: change(laws, token_chances))
    patch.setattr(judging, "block_chances", of_block)


def inverted_acceptance(patch: pytest.MonkeyPatch) -> None:
    def inverted(laws: Laws, real: Any) -> Chances:
        found = real(laws)
        return Chances(1 - found.pass_with, found.weights)

    with_chances(patch, inverted)


def q_taken_as_one(patch: pytest.MonkeyPatch) -> None:
    def of_one(laws: Laws, real: Any) -> Chances:
        return real(laws._replace(q=mx.ones_like(laws.q), q_drafted=mx.ones_like(laws.q_drafted)))  # type: ignore[no-any-return]

    with_chances(patch, of_one)


def laws_not_mapped_back(patch: pytest.MonkeyPatch) -> None:
    def left_in_place(_vocab: Any, laws: Any, ids: Any) -> Any:
        padded = mx.pad(laws, [(0, 0), (0, 0), (0, 5 - laws.shape[-1])])
        return mx.take_along_axis(padded, ids, axis=-1)

    patch.setattr(DraftVocab, "pick", left_in_place)


def ids_not_mapped_back(patch: pytest.MonkeyPatch) -> None:
    def draw_drafts(rows: Any, logits: Any, step: int, source: Any, vocab: Any, size: int) -> Any:
        ids, law = real_draw_drafts(rows, logits, step, source, vocab, size)
        return mx.argmax(vocab[None] == ids[:, None], axis=1).astype(mx.int32), law

    patch.setattr(drafting, "draw_drafts", draw_drafts)


def bonus_of_the_position_before(patch: pytest.MonkeyPatch) -> None:
    def shifted(laws: Laws, weights: Any, accepted: Any, lengths: Any) -> Any:
        late = mx.where(accepted == lengths, mx.maximum(accepted - 1, 0), accepted)
        q = mx.where((accepted == lengths)[:, None, None], 0, laws.q)
        return residual_law(laws._replace(q=q), weights, late, lengths)

    patch.setattr(judging, "residual_law", shifted)


def bonus_of_another_row(patch: pytest.MonkeyPatch) -> None:
    def of_first_row(laws: Laws, *others: Any) -> Any:
        return residual_law(laws._replace(p=mx.broadcast_to(laws.p[:1], laws.p.shape)), *others)

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
    def counts_all(laws: Laws, weights: Any, accepted: Any, lengths: Any) -> Any:
        return residual_law(laws, weights, accepted, mx.full(lengths.shape, laws.q.shape[1], lengths.dtype))

    monkeypatch.setattr(judging, "residual_law", counts_all)
    assert distance((2, 1), rule) > CLEARLY


def test_clipping_the_ratio_at_one_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(laws: Laws) -> Chances:
        return Chances(laws.p_drafted / laws.q_drafted, mx.ones(laws.p.shape[:2], laws.p.dtype))

    monkeypatch.setattr(judging, "token_chances", unclipped)
    assert distance() <= 1e-9


def block_with_the_residual_of_token(patch: pytest.MonkeyPatch) -> None:
    def unweighted(laws: Laws, lengths: Any) -> Chances:
        found = block_chances(laws, lengths)
        return Chances(found.pass_with, mx.ones_like(found.weights))

    patch.setattr(judging, "block_chances", unweighted)


def block_that_counts_to_the_first_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "count_to_last_pass", judging.count_before_failure)


def block_with_the_chances_of_token(patch: pytest.MonkeyPatch) -> None:
    def as_token(laws: Laws, lengths: Any) -> Chances:
        return Chances(token_chances(laws).pass_with, block_chances(laws, lengths).weights)

    patch.setattr(judging, "block_chances", as_token)


def block_without_its_last_position(patch: pytest.MonkeyPatch) -> None:
    def inner_everywhere(laws: Laws, lengths: Any) -> Chances:
        return block_chances(laws, mx.full(lengths.shape, laws.q.shape[1], lengths.dtype))

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
