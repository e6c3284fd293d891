"""The proof covers histories, bias and masks: what a position may have seen, and in which order, is all there is to get
wrong, and each way to get it wrong is far outside the bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mtplxd.engine import drafting, judging, shaping
from mtplxd.engine import round as rounds
from mtplxd.engine.request import BLOCK, TOKEN, DraftSampler, SamplerSettings
from mtplxd.engine.sampling import Law, filter_rows, scatter
from mtplxd.engine.shaping import Shaper, shape_logits
from mtplxd.platform.mlx import mx
from support.enumeration import Enumeration, Problem
from support.exact_float64 import use_exact_exponentials
from support.proof_cases import GRAMMAR, fixed, plain_law
from support.reference_laws import total_variation
from support.table_model import TableHead, TableTarget

CLEARLY = 1e-3
SAMPLER = SamplerSettings(
    temperature=1.3,
    top_k=4,
    repetition_penalty=1.6,
    presence_penalty=0.5,
    frequency_penalty=0.75,
    logit_bias=((0, 1.5), (3, -1.0), (4, 1.25)),
    draft=DraftSampler(temperature=1.2, top_k=2),
)

Patch = Callable[[pytest.MonkeyPatch], None]
real_init, real_draw_drafts, real_penalise = Shaper.__init__, judging.draw_drafts, shaping._penalise
real_masks, real_shape_draft = rounds._target_masks, drafting._shape_draft


def distance(rule: str) -> float:
    """Total variation of the law of three tokens from plain decoding's, beside a shorter row."""
    target = TableTarget(dtype=mx.float64, seed=2)
    model = Enumeration(target, TableHead(target, (0, 2, 3)), horizon=3, prune=False, checked=False)
    problem = Problem((1, 3, 2), replace(SAMPLER, acceptance=rule), fixed(2), GRAMMAR)
    [law] = model.text_laws([problem])
    return total_variation(law, plain_law(target, problem, 3))


def of_target(patch: pytest.MonkeyPatch, change: Callable[..., Any]) -> None:
    """Shapes the target's logits otherwise; the head's, whose vocabulary is reduced, as ever."""

    def shape(
        logits: Any, shapers: Any, unseen: Any, ahead: int = 0, masks: Any = None, vocab: Any = None
    ) -> Any:
        shaping_of = shape_logits if vocab is not None else change
        return shaping_of(logits, shapers, unseen, ahead, masks, vocab)

    patch.setattr(rounds, "shape_logits", shape)


def history_late_by_one_position(patch: pytest.MonkeyPatch) -> None:
    def late(logits: Any, shapers: Any, unseen: Any, ahead: int, *others: Any) -> Any:
        return shape_logits(logits, shapers, unseen, ahead - 1, *others)

    of_target(patch, late)


def history_without_the_drafts(patch: pytest.MonkeyPatch) -> None:
    of_target(
        patch, lambda logits, shapers, unseen, *others: shape_logits(logits, shapers, unseen[:, :0], *others)
    )


def history_with_the_draft_to_be_judged(patch: pytest.MonkeyPatch) -> None:
    def early(logits: Any, shapers: Any, unseen: Any, ahead: int, *others: Any) -> Any:
        return shape_logits(logits, shapers, unseen, ahead + 1, *others)

    of_target(patch, early)


def history_not_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shaper, "commit", lambda _self, _tokens: None)


def prompt_counted_as_generated(patch: pytest.MonkeyPatch) -> None:
    def init(self: Shaper, sampler: Any, prompt: Any) -> None:
        real_init(self, sampler, prompt)
        self.commit(prompt)

    patch.setattr(Shaper, "__init__", init)


def prompt_not_repeated(patch: pytest.MonkeyPatch) -> None:
    def init(self: Shaper, sampler: Any, _prompt: Any) -> None:
        real_init(self, sampler, ())

    patch.setattr(Shaper, "__init__", init)


def bias_after_penalties(patch: pytest.MonkeyPatch) -> None:
    def penalise(logits: Any, shapers: Any, *others: Any) -> Any:
        first, second = (replaced(shapers, **off) for off in (NO_BIAS, NO_PENALTIES))
        return real_penalise(real_penalise(logits, first, *others), second, *others)

    patch.setattr(shaping, "_penalise", penalise)


def penalties_after_temperature(patch: pytest.MonkeyPatch) -> None:
    def penalise(logits: Any, shapers: Any, *others: Any) -> Any:
        temperature = shapers[0].sampler.temperature
        biased = real_penalise(logits, replaced(shapers, **NO_PENALTIES), *others)
        return real_penalise(biased / temperature, replaced(shapers, **NO_BIAS), *others) * temperature

    patch.setattr(shaping, "_penalise", penalise)


def presence_before_repetition(patch: pytest.MonkeyPatch) -> None:
    def penalise(logits: Any, shapers: Any, *others: Any) -> Any:
        biased = real_penalise(logits, replaced(shapers, **NO_PENALTIES), *others)
        first, second = (replaced(shapers, **NO_BIAS, **off) for off in (NO_REPETITION, NO_PRESENCE))
        return real_penalise(real_penalise(biased, first, *others), second, *others)

    patch.setattr(shaping, "_penalise", penalise)


NO_REPETITION = {"repetition_penalty": 1.0}
NO_PRESENCE = {"presence_penalty": 0.0, "frequency_penalty": 0.0}
NO_PENALTIES: dict[str, Any] = NO_REPETITION | NO_PRESENCE
NO_BIAS: dict[str, Any] = {"logit_bias": ()}


def replaced(shapers: Any, **others: Any) -> list[Any]:
    """Shapers of the same histories with other settings."""
    found = []
    for shaper in shapers:
        other = object.__new__(Shaper)
        other.__dict__.update(shaper.__dict__, sampler=replace(shaper.sampler, **others), _columns={})
        found.append(other)
    return found


def mask_after_top_k(patch: pytest.MonkeyPatch) -> None:
    masks: list[Any] = []

    def unmasked(logits: Any, shapers: Any, unseen: Any, ahead: int, mask: Any, vocab: Any) -> Any:
        masks.append(mask)
        return shape_logits(logits, shapers, unseen, ahead, None, vocab)

    def filter_then_mask(logits: Any, samplers: Any, **options: Any) -> Law:
        law = filter_rows(logits, samplers, **options)
        if logits.ndim == 2:
            return law
        left = mx.where(masks[-1], scatter(law.p, law.ids, logits.shape[-1]), 0) + masks[-1] * 1e-12
        return Law(left, None, law.sound)

    of_target(patch, unmasked)
    patch.setattr(judging, "filter_rows", filter_then_mask)


def masks_of_the_position_before(patch: pytest.MonkeyPatch) -> None:
    def late(*given: Any) -> Any:
        masks = real_masks(*given)
        return mx.concatenate([masks[:, :1], masks[:, :-1]], axis=1)

    patch.setattr(rounds, "_target_masks", late)


def one_mask_for_all_positions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounds, "_target_masks", lambda *given: mx.repeat(real_masks(*given)[:, :1], 3, axis=1))


def q_without_what_drafts_were_drawn_with(patch: pytest.MonkeyPatch) -> None:
    raw: list[Any] = []

    def shape_draft(batch: Any, logits: Any, *others: Any) -> Any:
        raw.append(logits)
        return real_shape_draft(batch, logits, *others)

    def draw_drafts(rows: Any, logits: Any, step: int, source: Any, vocab: Any, size: int) -> Any:
        ids, _ = real_draw_drafts(rows, logits, step, source, vocab, size)
        law = filter_rows(raw[-1], [row.drafting for row in rows])
        return ids, scatter(law.p, law.ids, logits.shape[-1])

    patch.setattr(drafting, "_shape_draft", shape_draft)
    patch.setattr(drafting, "draw_drafts", draw_drafts)


def q_of_the_targets_own_sampler(patch: pytest.MonkeyPatch) -> None:
    def draw_drafts(rows: Any, logits: Any, step: int, source: Any, vocab: Any, size: int) -> Any:
        ids, _ = real_draw_drafts(rows, logits, step, source, vocab, size)
        law = filter_rows(logits, [row.sampler for row in rows])
        return ids, scatter(law.p, law.ids, logits.shape[-1])

    patch.setattr(drafting, "draw_drafts", draw_drafts)


MUTANTS: dict[str, Patch] = {
    patch.__name__: patch
    for patch in (
        history_late_by_one_position,
        history_without_the_drafts,
        history_with_the_draft_to_be_judged,
        history_not_committed,
        prompt_counted_as_generated,
        prompt_not_repeated,
        bias_after_penalties,
        penalties_after_temperature,
        presence_before_repetition,
        mask_after_top_k,
        masks_of_the_position_before,
        one_mask_for_all_positions,
        q_without_what_drafts_were_drawn_with,
        q_of_the_targets_own_sampler,
    )
}


@pytest.fixture(autouse=True)
def _exact_exponentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_exponentials(monkeypatch)


@pytest.mark.parametrize("rule", [TOKEN, BLOCK])
def test_the_real_functions_pass_the_measure_the_mutants_fail(rule: str) -> None:
    assert distance(rule) <= 1e-9


@pytest.mark.parametrize("rule", [TOKEN, BLOCK])
@pytest.mark.parametrize("name", MUTANTS)
def test_the_proof_fails_for(name: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert distance(rule) > CLEARLY


@pytest.mark.parametrize("rule", [TOKEN, BLOCK])
def test_drafts_may_be_drawn_from_any_history_as_long_as_q_says_so(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the head is told costs acceptance at worst."""

    def unpenalised(batch: Any, logits: Any, *others: Any) -> Any:
        real_shape_draft(batch, logits, *others)  # looks at the masks
        return logits

    monkeypatch.setattr(drafting, "_shape_draft", unpenalised)
    assert distance(rule) <= 1e-9
