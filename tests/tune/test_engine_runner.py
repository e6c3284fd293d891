"""Answers measured on a real engine: their numbers, their ideal rounds, and a cancel that gives the engine back."""

from __future__ import annotations

import pytest
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Text
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.errors import Cancelled
from mtplxd.families.load import LoadedModel
from mtplxd.tune.inprocess import EngineRunner
from mtplxd.tune.plan import Step

PROMPT = list(range(3, 40))
SAMPLER = SamplerSettings(temperature=0.6, top_p=0.95)


def runner_of(engine: Engine, model: LoadedModel) -> EngineRunner:
    return EngineRunner(engine, model, [PROMPT], SAMPLER)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_an_answer_has_all_its_tokens_and_an_ideal_round(
    engine: Engine, model: LoadedModel, depth: int
) -> None:
    runner = runner_of(engine, model)
    run = engine.call(lambda: runner.answer(Step(0, depth, 5, 40), lambda: None), "measuring").result()
    assert (run.prompt, run.depth, run.tokens) == (0, depth, 40)
    assert 0 < run.first_s < run.last_s
    assert run.ideal_round_ms > 0
    assert run.measured_round_ms > 0
    assert len(run.stats.judged_by_position) == depth


def test_the_measured_text_is_the_one_a_request_with_that_seed_gives(
    engine: Engine, model: LoadedModel
) -> None:
    """Nothing about measuring changes what is decoded: the rounds are as many, the acceptance is the same."""
    runner = runner_of(engine, model)
    run = engine.call(lambda: runner.answer(Step(0, 2, 11, 32), lambda: None), "measuring").result()
    request = Request(
        id="again",
        client="test",
        model=model,
        prompt=list(PROMPT),
        sampler=SamplerSettings(temperature=0.6, top_p=0.95, seed=11),
        max_tokens=32,
        ignore_eos=True,
        depth=2,
    )
    finished = engine.call(lambda: engine.run_inline(request, lambda _: None), "testing").result()
    assert run.stats.rounds == finished.stats.rounds
    assert run.stats.accepted_by_position == finished.stats.accepted_by_position


@pytest.mark.parametrize("depth", [0, 2])
def test_a_cancel_gives_the_engine_back_within_a_round(
    engine: Engine, model: LoadedModel, depth: int
) -> None:
    asked = 0

    def poll() -> str | None:
        nonlocal asked
        asked += 1
        return "client" if asked >= 6 else None

    runner = runner_of(engine, model)
    future = engine.call(lambda: runner.answer(Step(0, depth, 5, 10_000), poll), "measuring")
    with pytest.raises(Cancelled, match="by client"):
        future.result()
    assert asked == 6  # not asked again: no round followed
    assert engine.snapshot().busy_with == ""
    assert engine.call(lambda: "free", "testing").result() == "free"


def test_a_cancel_is_heard_while_ideal_rounds_are_timed(engine: Engine, model: LoadedModel) -> None:
    tokens, asked = 8, 0

    def poll() -> str | None:
        nonlocal asked
        asked += 1
        return "client" if asked > rounds + 2 else None

    rounds = 10**9
    runner = runner_of(engine, model)
    engine.call(lambda: runner.answer(Step(0, 0, 5, tokens), poll), "measuring").result()
    rounds, asked = asked - 7, 0  # seven times between repetitions of the ideal round
    future = engine.call(lambda: runner.answer(Step(0, 0, 5, tokens), poll), "measuring")
    with pytest.raises(Cancelled):
        future.result()
    assert asked == rounds + 3


def test_requests_wait_with_the_reason_and_are_served_afterwards(engine: Engine, model: LoadedModel) -> None:
    runner = runner_of(engine, model)
    seen: list[str] = []
    events: list[Event] = []

    def measure_while_one_waits() -> None:
        request = Request("waiting", "other", model, list(PROMPT), SAMPLER, 4, depth=1)
        engine.submit(request, events.append)
        runner.answer(Step(0, 1, 5, 8), lambda: None)
        seen.extend(waiting.waits_for for waiting in engine.snapshot().in_flight)
        assert not any(isinstance(event, Text) for event in events)

    engine.call(measure_while_one_waits, "measuring").result()
    engine.call(lambda: None, "testing").result()
    assert seen == ["measuring"]


def test_stopping_the_engine_ends_a_measurement(model: LoadedModel) -> None:
    engine = Engine()
    engine.start()
    runner = runner_of(engine, model)
    begun = 0

    def poll() -> str | None:
        nonlocal begun
        begun += 1
        if begun == 3:
            engine._stopping = True
        return None

    future = engine.call(lambda: runner.answer(Step(0, 0, 5, 10_000), poll), "measuring")
    with pytest.raises(Cancelled, match="by shutdown"):
        future.result()
    assert engine.stop(60)


def test_ideal_rounds_can_be_left_out(engine: Engine, model: LoadedModel) -> None:
    runner = EngineRunner(engine, model, [PROMPT], SAMPLER, ideal=False)
    run = engine.call(lambda: runner.answer(Step(0, 2, 5, 12), lambda: None), "measuring").result()
    assert (run.tokens, run.ideal_round_ms) == (12, 0.0)
    assert run.measured_round_ms > 0
