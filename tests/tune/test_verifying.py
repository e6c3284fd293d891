"""Verifications on a real engine: a sound one passes at every depth, each kind of wrong decoder fails."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from mtplxd.engine import judging
from mtplxd.engine.acceptance import Chances, Laws
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Text
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.engine.uniforms import RoundUniforms
from mtplxd.errors import Cancelled, FailedPrecondition
from mtplxd.families.adapter import AdapterHead
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import mx
from mtplxd.tune.measure import Progress
from mtplxd.tune.verification import Plan, Verification, plan_law_texts
from mtplxd.tune.verify import Verifier
from mtplxd.tune.verify_forwards import measure_shape_noise, plain_logits, teach

PROMPTS = (tuple(range(3, 40)), tuple(range(50, 75)))
PLAN = Plan(PROMPTS, (11, 12), (0, 1, 3), tokens=24, samples=1000)
EQUALITY = replace(PLAN, samples=160)
"""For what is found by comparing texts."""
FAR = replace(PLAN, samples=500)
"""For laws that are far from the right one."""


def verify(engine: Engine, model: LoadedModel, plan: Plan = PLAN) -> Verification:
    def work() -> Verification:
        return Verifier(engine, model, plan, lambda _: None, lambda: None, time.perf_counter).run()

    return engine.call(work, "verifying").result()


def test_a_sound_decoder_passes(engine: Engine, model: LoadedModel) -> None:
    found = verify(engine, model)
    assert found.failures == ()
    assert found.passed
    assert found.depths == (0, 1, 3)
    assert 0 <= found.shape_noise < 1e-3
    assert found.greedy.tokens == 2 * 2 * 24
    assert found.coupled.tokens == 2 * 2 * 2 * 24
    assert 1000 <= found.law.tokens < 1000 + 24
    assert found.law.power > 0.5
    assert found.degraded == ()


def test_texts_are_the_same_every_time(engine: Engine, model: LoadedModel) -> None:
    small = Plan(PROMPTS[:1], (11,), (0, 2), tokens=8, samples=160)
    assert verify(engine, model, small) == verify(engine, model, small)


def test_tokens_drawn_from_the_drafts_law_fail(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def certain(laws: Laws, *_: Any) -> Chances:
        return Chances(mx.ones_like(laws.p_drafted), mx.ones(laws.p.shape[:2], laws.p.dtype))

    monkeypatch.setattr(judging, "token_chances", certain)
    monkeypatch.setattr(judging, "block_chances", certain)
    found = verify(engine, model, FAR)
    assert any(reason.startswith("law: tokens do not follow") for reason in found.failures)
    assert found.greedy.divergences == found.coupled.divergences == 0  # they are judged by equality


def test_a_verify_that_ignores_the_temperature_fails(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = judging.filter_rows

    def forgetful(logits: Any, samplers: list[SamplerSettings], **options: Any) -> Any:
        if logits.ndim == 3 and logits.shape[1] > 1:  # a round with drafts, neither a plain one nor a draft
            samplers = [SamplerSettings(temperature=1.0, top_p=sampler.top_p) for sampler in samplers]
        return right(logits, samplers, **options)

    monkeypatch.setattr(judging, "filter_rows", forgetful)
    found = verify(engine, model, FAR)
    assert any(reason.startswith("law:") for reason in found.failures)
    assert found.coupled.divergences
    assert not found.greedy.found  # knows no temperature


def test_a_verify_that_believes_every_draft_fails_where_texts_must_be_equal(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "equal_passed", lambda _best, drafts: mx.ones(drafts.shape, mx.bool_))
    found = verify(engine, model, EQUALITY)
    assert found.greedy.divergences
    assert found.coupled.divergences
    assert {reason.split(":")[0] for reason in found.failures} == {"greedy", "coupled"}


def test_noise_that_moves_with_the_depth_fails_coupled_texts_alone(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = RoundUniforms.races

    def shifted(self: RoundUniforms, begin: int, count: int, size: int) -> Any:
        return right(self, begin + 7 * (count > 1), count, size)

    monkeypatch.setattr(RoundUniforms, "races", shifted)
    assert {reason.split(":")[0] for reason in verify(engine, model, EQUALITY).failures} == {"coupled"}


def test_a_head_that_fails_cannot_be_verified(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its texts are right, by plain decoding: nothing about drafting was shown."""

    def broken(_self: Any, *_: Any) -> Any:
        raise ValueError("no such kernel")

    monkeypatch.setattr(AdapterHead, "extend", broken)
    found = verify(engine, model, Plan(PROMPTS[:1], (11,), (0, 1, 2), tokens=8, samples=160))
    assert found.failures == ("depth 2: the head failed (head_failed)",)


def test_a_model_without_numbers_is_refused(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = type(model.target).logits
    monkeypatch.setattr(type(model.target), "logits", lambda self, hidden: right(self, hidden) * mx.inf)
    with pytest.raises(FailedPrecondition, match="non-finite"):
        verify(engine, model)


def test_plain_forwards_give_what_the_engine_decodes_from(engine: Engine, model: LoadedModel) -> None:
    prompt = list(PROMPTS[0])
    tokens: list[int] = []

    def hear(event: Event) -> None:
        if isinstance(event, Text):
            tokens.extend(event.tokens)

    def work() -> None:
        sampler = SamplerSettings(temperature=0.0)
        request = Request("r", "test", model, prompt, sampler, 12, ignore_eos=True)
        engine.run_inline(request, hear)
        taught = teach(model, prompt, tokens)
        assert taught.shape == (12, model.target.vocab_size)
        assert taught.argmax(axis=1).tolist() == tokens
        for place in (0, 5, 11):
            alone = plain_logits(model, prompt, tokens[:place], lambda: None)
            assert abs(alone - taught[place]).max() < 1e-3
        assert measure_shape_noise(model, prompt, tokens, (0,), lambda: None) == 0.0

    engine.call(work, "testing").result()


def test_laws_are_drawn_from_at_a_deep_and_the_shallowest_depth_with_seeds_of_their_own() -> None:
    texts = plan_law_texts(Plan(PROMPTS, (1 << 32, 7), (0, 1, 2, 5), tokens=10, samples=95), reached=6)
    assert len(texts) == 10
    assert [text.depth for text in texts[:4]] == [5, 5, 1, 1]
    assert [text.prompt for text in texts] == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]
    assert len({text.sampler.seed for text in texts} | {1 << 32, 7}) == 12
    assert {(text.sampler.temperature, text.sampler.top_p) for text in texts} == {(0.6, 0.95), (1.0, 1.0)}


@pytest.mark.parametrize(("reached", "depths"), [(0, {1}), (1, {1}), (4, {1, 2}), (5, {1, 5}), (8, {1, 5})])
def test_laws_are_drawn_from_no_deeper_than_drafts_were_accepted(reached: int, depths: set[int]) -> None:
    plan = Plan(PROMPTS, (11, 12), (0, 1, 2, 5), tokens=10, samples=160)
    assert {text.depth for text in plan_law_texts(plan, reached)} == depths


def test_progress_rises_to_its_total_with_an_estimate(engine: Engine, model: LoadedModel) -> None:
    said: list[Progress] = []
    plan = Plan(PROMPTS[:1], (11,), (0, 2), tokens=8, samples=160)

    def work() -> None:
        Verifier(engine, model, plan, said.append, lambda: None, time.perf_counter).run()

    engine.call(work, "verifying").result()
    assert [step.done for step in said] == sorted(step.done for step in said)
    assert said[0].done == 0
    assert said[-1].done == said[-1].total
    assert all(step.eta_s > 0 for step in said[1:-1])


@pytest.mark.parametrize("after", [2, 40, 75, 160])
def test_a_cancel_gives_the_engine_back_within_a_round(
    engine: Engine, model: LoadedModel, after: int
) -> None:
    asked = 0

    def poll() -> str | None:
        nonlocal asked
        asked += 1
        return "client" if asked >= after else None

    plan = Plan(PROMPTS[:1], (11,), (0, 2), tokens=24, samples=160)
    verifier = Verifier(engine, model, plan, lambda _: None, poll, time.perf_counter)
    with pytest.raises(Cancelled, match="by client"):
        engine.call(verifier.run, "verifying").result()
    assert asked == after  # not asked again: no round and no forward followed
    assert engine.call(lambda: "free", "testing").result() == "free"


def test_stopping_the_engine_ends_a_verification_between_forwards(model: LoadedModel) -> None:
    engine = Engine()
    engine.start()
    polled = 0

    def poll() -> str | None:
        nonlocal polled
        polled += 1
        if polled == 60:  # the forwards that measure the noise have begun
            engine._stopping = True
        return None

    plan = Plan(PROMPTS[:1], (11,), (0, 2), tokens=24, samples=160)
    verifier = Verifier(engine, model, plan, lambda _: None, poll, time.perf_counter)
    future = engine.call(verifier.run, "verifying")
    with pytest.raises(Cancelled, match="by shutdown"):
        future.result()
    assert polled == 60
    assert engine.stop(60)
