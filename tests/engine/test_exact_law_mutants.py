"""The proof of the law has teeth: each wrong rule, put in the place of the real function, is far outside its bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mtplxd.engine import round as rounds
from mtplxd.engine import sampling
from mtplxd.engine.acceptance import accept_chances, residual_law
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.sampling import filter_logits, filter_rows, scatter_vocab
from mtplxd.platform.mlx import mx
from support.enumeration import Enumeration, Problem
from support.exact_float64 import use_exact_exponentials
from support.reference_laws import reference_law, text_law, total_variation
from support.table_model import TableHead, TableTarget

CLEARLY = 1e-3
PROMPT = (1, 3, 2)
SAMPLER = SamplerSettings(temperature=0.8, top_k=4, top_p=0.8, min_p=0.06)

Patch = Callable[[pytest.MonkeyPatch], None]
real_judge, real_draw_draft = rounds._judge, rounds._draw_draft


def distance(depths: tuple[int, ...] = (2,)) -> float:
    """Total variation of the law of three tokens from plain decoding's, the largest of rows of these depths."""
    target = TableTarget(dtype=mx.float64, seed=2)
    model = Enumeration(target, TableHead(target, (0, 2, 3)), horizon=3, prune=False, checked=False)
    problems = [Problem(PROMPT, SAMPLER, lambda _, depth=depth: depth) for depth in depths]
    expected = text_law(lambda text: reference_law(target.logits_after(PROMPT + text), SAMPLER), 3, 5)
    return max(total_variation(law, expected) for law in model.text_laws(problems))


def wrong_q(patch: pytest.MonkeyPatch) -> None:
    def draw_draft(batch: Any, logits: Any, step: int, source: Any) -> Any:
        ids, _ = real_draw_draft(batch, logits, step, source)
        other = filter_rows(logits / 2, [row.sampler for row in batch.rows]).p
        return ids, scatter_vocab(other, batch.head.draft_vocab, batch.target.vocab_size)

    patch.setattr(rounds, "_draw_draft", draw_draft)


def missing_residual(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounds, "residual_law", lambda p, q, at, lengths: residual_law(p, q * 0, at, lengths))


def stale_history(patch: pytest.MonkeyPatch) -> None:
    def judge(rows: Any, logits: Any, *others: Any, full: bool) -> Any:
        stale = mx.concatenate([logits[:, :-1], logits[:, -2:-1]], axis=1)
        return real_judge(rows, stale, *others, full=full)

    patch.setattr(rounds, "_judge", judge)


def top_p_before_top_k(patch: pytest.MonkeyPatch) -> None:
    def swapped(logits: Any, sampler: SamplerSettings, *, full: bool = False) -> Any:
        first = filter_logits(logits, replace(sampler, top_k=0, min_p=0.0), full=full)
        second = replace(sampler, temperature=1.0, top_p=1.0)
        return filter_logits(mx.log(first.p), second, full=full)

    patch.setattr(sampling, "filter_logits", swapped)


def temperature_last(patch: pytest.MonkeyPatch) -> None:
    def swapped(logits: Any, sampler: SamplerSettings, *, full: bool = False) -> Any:
        first = filter_logits(logits, replace(sampler, temperature=1.0), full=full)
        return filter_logits(mx.log(first.p), SamplerSettings(temperature=sampler.temperature), full=full)

    patch.setattr(sampling, "filter_logits", swapped)


def inverted_acceptance(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounds, "accept_chances", lambda p, q, drafts: 1 - accept_chances(p, q, drafts))


def q_taken_as_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounds, "accept_chances", lambda p, q, drafts: accept_chances(p, mx.ones_like(q), drafts))


def laws_not_mapped_back(patch: pytest.MonkeyPatch) -> None:
    def left_in_place(law: Any, _vocab: Any, size: int) -> Any:
        return mx.pad(law, [(0, 0), (0, size - law.shape[1])])

    patch.setattr(rounds, "scatter_vocab", left_in_place)


def ids_not_mapped_back(patch: pytest.MonkeyPatch) -> None:
    def draw_draft(batch: Any, logits: Any, step: int, source: Any) -> Any:
        ids, law = real_draw_draft(batch, logits, step, source)
        return mx.argmax(batch.head.draft_vocab[None] == ids[:, None], axis=1).astype(mx.int32), law

    patch.setattr(rounds, "_draw_draft", draw_draft)


def bonus_of_the_position_before(patch: pytest.MonkeyPatch) -> None:
    def shifted(p: Any, q: Any, accepted: Any, lengths: Any) -> Any:
        late = mx.where(accepted == lengths, mx.maximum(accepted - 1, 0), accepted)
        return residual_law(p, mx.where((accepted == lengths)[:, None, None], 0, q), late, lengths)

    patch.setattr(rounds, "residual_law", shifted)


def bonus_of_another_row(patch: pytest.MonkeyPatch) -> None:
    def of_first_row(p: Any, q: Any, accepted: Any, lengths: Any) -> Any:
        return residual_law(mx.broadcast_to(p[:1], p.shape), q, accepted, lengths)

    patch.setattr(rounds, "residual_law", of_first_row)


MUTANTS: dict[str, Patch] = {
    patch.__name__: patch
    for patch in (
        wrong_q,
        missing_residual,
        stale_history,
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


def test_the_real_functions_pass_the_measure_the_mutants_fail() -> None:
    assert distance((2, 1)) <= 1e-9


@pytest.mark.parametrize("name", MUTANTS)
def test_the_proof_fails_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert distance() > CLEARLY


def test_the_proof_fails_for_a_short_row_that_counts_its_neighbours_drafts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def counts_all(p: Any, q: Any, accepted: Any, lengths: Any) -> Any:
        return residual_law(p, q, accepted, mx.full(lengths.shape, q.shape[1], lengths.dtype))

    monkeypatch.setattr(rounds, "residual_law", counts_all)
    assert distance((2, 1)) > CLEARLY


def test_clipping_the_ratio_at_one_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(p: Any, q: Any, drafts: Any) -> Any:
        places = drafts[..., None]
        ratio = mx.take_along_axis(p[:, :-1], places, -1) / mx.take_along_axis(q, places, -1)
        return mx.minimum(ratio[..., 0], 1.0)

    monkeypatch.setattr(rounds, "accept_chances", unclipped)
    assert distance() <= 1e-9
