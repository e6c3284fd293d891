"""What a generation's settings become on the way to the engine, and how its log-probabilities come back."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import common_pb2, generation_pb2
from mtplxd.engine.events import Event, Logprobs, Text, TokenLogprob
from mtplxd.errors import InvalidArgument
from support.fake_engine import Job, ScriptedEngine, finished
from support.rpc_rig import Wire, eventually, wired

BIAS = common_pb2.LogitBias


def play(scenario: Any, engine: ScriptedEngine | None = None) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired(engine) as wire:
            await scenario(wire)

    asyncio.run(main())


async def events_of(wire: Wire, **fields: Any) -> list[generation_pb2.GenerateEvent]:
    return [event async for event in wire.generation.Generate(wire.ask(**fields))]


async def refusal(wire: Wire, **fields: Any) -> str:
    """The details of a request that is refused as invalid; nothing of it stays behind."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await events_of(wire, **fields)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    await eventually(lambda: all(view.in_use == 0 for view in wire.models.residency.views()))
    assert wire.engine.jobs == []
    return refused.value.details() or ""


def with_logprobs(job: Job) -> Iterator[Event]:
    yield Logprobs((TokenLogprob(104, -0.5, ((104, -0.5), (200, -1.5)), -0.25), TokenLogprob(105, -2.0)))
    yield Text("hi", (104, 105))
    yield finished(job, made=2)


def sampler(**said: Any) -> common_pb2.SamplerRequest:
    return common_pb2.SamplerRequest(**said)


def test_every_setting_reaches_the_engine_and_the_sampler_comes_back_whole() -> None:
    async def scenario(wire: Wire) -> None:
        asked = sampler(
            temperature=0.5,
            presence_penalty=0.25,
            frequency_penalty=-0.5,
            repetition_penalty=1.25,
            logit_bias=[BIAS(token=7, bias=-3.0)],
            reproducible=True,
            draft_temperature=0.75,
            draft_top_k=9,
        )
        events = await events_of(wire, sampler=asked, logprobs=3, law_logprobs=True)
        request = wire.engine.jobs[0].request
        settled = request.sampler
        assert (settled.presence_penalty, settled.frequency_penalty) == (0.25, -0.5)
        assert (settled.repetition_penalty, settled.logit_bias) == (1.25, ((7, -3.0),))
        assert (settled.acceptance, settled.reproducible) == ("coupled", True)
        assert (settled.draft.temperature, settled.draft.top_k) == (0.75, 9)
        assert (request.logprobs, request.law_logprobs, request.grammar) == (3, True, None)
        echo = events[-1].final.sampler
        for field, value in asked.ListFields():
            assert getattr(echo, field.name) == value
        assert (echo.acceptance, echo.seed) == ("coupled", settled.seed)

    play(scenario)


def test_a_request_that_asks_for_nothing_gets_nothing() -> None:
    async def scenario(wire: Wire) -> None:
        await events_of(wire)
        request = wire.engine.jobs[0].request
        assert (request.logprobs, request.law_logprobs, request.grammar) == (None, False, None)
        assert not request.sampler.penalised

    play(scenario)


@pytest.mark.parametrize("law", [True, False])
def test_logprobs_come_before_their_text_with_each_tokens_own_bytes(law: bool) -> None:
    async def scenario(wire: Wire) -> None:
        events = await events_of(wire, logprobs=2, law_logprobs=law)
        kinds = [event.WhichOneof("event") for event in events]
        assert kinds[-3:] == ["logprobs", "text", "final"]
        first, second = events[-3].logprobs.tokens
        assert (first.token, first.logprob, first.text) == (104, -0.5, b"h")
        assert [(top.token, top.logprob, top.text) for top in first.top] == [
            (104, -0.5, b"h"),
            (200, -1.5, bytes([200])),
        ]
        assert (second.token, second.text, list(second.top)) == (105, b"i", [])
        assert (first.HasField("law"), first.law) == (law, -0.25 if law else 0.0)

    play(scenario, ScriptedEngine(with_logprobs))


def test_a_bias_of_an_unknown_id_is_refused_and_frees_the_model() -> None:
    async def scenario(wire: Wire) -> None:
        wish = sampler(logit_bias=[BIAS(token=255, bias=1), BIAS(token=256, bias=1)])
        assert "256" in await refusal(wire, sampler=wish)

    play(scenario)


def test_a_drafts_settings_without_a_head_are_refused() -> None:
    async def scenario(wire: Wire) -> None:
        wire.models.residency.acquire("a", headless=True).result(30).release()
        assert "draft_temperature" in await refusal(wire, sampler=sampler(draft_temperature=0.5))

    play(scenario)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the grammar compiler was asked, with the thread that asked; it refuses the text `bad`."""
    asked: list[tuple[Any, ...]] = []

    def compile_grammar(
        kind: str, text: str, tokenizer: Any, vocab_size: int, eos_ids: frozenset[int]
    ) -> str:
        asked.append((kind, text, tokenizer.vocab_size, vocab_size, eos_ids, threading.current_thread().name))
        if text == "bad":
            raise InvalidArgument("nothing matches", None, "loosen it", field=kind)
        return f"compiled {kind}"

    module = types.ModuleType("mtplxd.engine.grammar")
    module.compile_grammar = compile_grammar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mtplxd.engine.grammar", module)
    return asked


@pytest.mark.parametrize("kind", ["json_schema", "regex", "grammar"])
def test_a_structure_is_compiled_once_beside_the_loop(kind: str, compiled: list[tuple[Any, ...]]) -> None:
    async def scenario(wire: Wire) -> None:
        await events_of(wire, **{kind: "text of it"})
        assert wire.engine.jobs[0].request.grammar == f"compiled {kind}"
        ((*asked, thread),) = compiled
        assert asked == [kind, "text of it", 256, 256, frozenset({2})]
        assert thread.startswith("compile")

    play(scenario)


@pytest.mark.parametrize("kind", ["json_schema", "regex", "grammar"])
def test_a_structure_nothing_matches_is_refused_and_frees_the_model(
    kind: str, compiled: list[tuple[Any, ...]]
) -> None:
    async def scenario(wire: Wire) -> None:
        assert "nothing matches" in await refusal(wire, **{kind: "bad"})

    play(scenario)
    assert len(compiled) == 1
