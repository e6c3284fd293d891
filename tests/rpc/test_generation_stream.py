"""A generation's way to the engine and back: events in order, each end with its origin, no lease lost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import common_pb2, generation_pb2
from mtplxd.engine.events import Event, Progress, Text
from mtplxd.errors import ResourceExhausted
from mtplxd.rpc.answers import UNREAD_LIMIT
from mtplxd.rpc.calls import EarlyCall
from support.fake_engine import Job, ScriptedEngine, finished, until_cancelled
from support.rpc_rig import ByteTokenizer, Wire, eventually, wired


def play(scenario: Any, engine: ScriptedEngine | None = None, model: str | None = None, **rig: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired(engine, model, **rig) as wire:
            await scenario(wire)

    asyncio.run(main())


async def refusal(wire: Wire, request: generation_pb2.GenerateRequest) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in wire.generation.Generate(request):
            pass
    return refused.value


async def is_idle(wire: Wire) -> None:
    """Neither the residency nor rpc holds on to anything."""
    await eventually(lambda: all(view.in_use == 0 for view in wire.models.residency.views()))
    await eventually(lambda: not wire.early.all())


def test_events_arrive_in_order_and_the_final_one_ends_the_stream() -> None:
    async def scenario(wire: Wire) -> None:
        events = [event async for event in wire.generation.Generate(wire.ask(max_tokens=9))]
        kinds = [event.WhichOneof("event") for event in events]
        assert kinds[-3:] == ["text", "text", "final"]
        assert set(kinds[:-3]) <= {"progress"}
        assert "".join(event.text.text for event in events) == "hello"
        final = events[-1].final
        assert (final.finish_reason, final.stop_origin) == ("stop", "eos")
        assert final.usage.prompt_tokens == 2
        assert final.model == "a"
        await is_idle(wire)

    play(scenario)


def test_what_the_engine_gets_is_what_was_asked() -> None:
    async def scenario(wire: Wire) -> None:
        sampler = common_pb2.SamplerRequest(temperature=0.5, seed=7)
        request = wire.ask(
            max_tokens=9, sampler=sampler, stop=["."], ignore_eos=True, depth=common_pb2.Depth(fixed=3)
        )
        metadata = (("mtplx-client", "me"),)
        events = [event async for event in wire.generation.Generate(request, metadata=metadata)]
        asked = wire.engine.jobs[0].request
        assert asked.prompt == list(b"hi")
        assert (asked.max_tokens, asked.stop, asked.ignore_eos, asked.depth) == (9, (".",), True, 3)
        assert asked.client == "me"
        assert asked.deadline is None
        echoed = events[-1].final.sampler
        assert (echoed.temperature, echoed.seed, echoed.acceptance) == (0.5, 7, "coupled")

    play(scenario)


def test_a_seed_that_was_drawn_is_echoed() -> None:
    async def scenario(wire: Wire) -> None:
        events = [event async for event in wire.generation.Generate(wire.ask())]
        assert events[-1].final.sampler.seed == wire.engine.jobs[0].request.sampler.seed

    play(scenario)


def test_a_client_that_cancels_ends_its_request_and_frees_the_model() -> None:
    async def scenario(wire: Wire) -> None:
        call = wire.generation.Generate(wire.ask())
        async for event in call:
            if event.WhichOneof("event") == "text":
                break
        call.cancel()
        await eventually(lambda: wire.engine.jobs[0].finished.is_set())
        assert wire.engine.jobs[0].origin == "client"
        await is_idle(wire)

    play(scenario, ScriptedEngine(until_cancelled))


def test_a_connection_that_drops_ends_its_request() -> None:
    async def scenario(wire: Wire) -> None:
        channel = grpc.aio.insecure_channel(f"unix:{wire.home.socket}")
        generate = channel.unary_stream(
            "/mtplx.v1.Generation/Generate",
            request_serializer=generation_pb2.GenerateRequest.SerializeToString,
            response_deserializer=generation_pb2.GenerateEvent.FromString,
        )
        call = generate(wire.ask())
        while (await call.read()).WhichOneof("event") != "text":
            pass
        await channel.close()
        await eventually(lambda: wire.engine.jobs[0].finished.is_set())
        assert wire.engine.jobs[0].origin == "client"
        await is_idle(wire)

    play(scenario, ScriptedEngine(until_cancelled))


def test_two_hundred_clients_that_come_and_go_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(wire: Wire) -> None:
        for _ in range(200):
            call = wire.generation.Generate(wire.ask())
            await call.read()
            call.cancel()
        await eventually(lambda: all(job.finished.is_set() for job in wire.engine.jobs))
        await is_idle(wire)
        assert wire.engine.snapshot().running == 0
        wire.engine.script = lambda job: iter([finished(job)])
        events = [event async for event in wire.generation.Generate(wire.ask())]
        assert events[-1].final.finish_reason == "stop"

    play(scenario, ScriptedEngine(until_cancelled))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_deadline_reaches_the_engine_and_names_the_end() -> None:
    async def scenario(wire: Wire) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for _ in wire.generation.Generate(wire.ask(), timeout=0.3):
                pass
        assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: wire.engine.jobs[0].finished.is_set())
        assert wire.engine.jobs[0].origin == "deadline"
        assert wire.engine.jobs[0].request.deadline is not None

    play(scenario, ScriptedEngine(until_cancelled))


def test_an_operator_cancels_what_the_engine_has() -> None:
    async def scenario(wire: Wire) -> None:
        from mtplx_proto.v1 import system_pb2

        call = wire.generation.Generate(wire.ask())
        metadata = dict(await call.initial_metadata())
        await eventually(lambda: wire.engine.jobs)
        reply = await wire.system.Cancel(system_pb2.CancelRequest(id=metadata["mtplx-request-id"]))
        assert reply.found
        events = [event async for event in call]
        assert events[-1].final.stop_origin == "operator"
        unknown = await wire.system.Cancel(system_pb2.CancelRequest(id="nobody"))
        assert not unknown.found

    play(scenario, ScriptedEngine(until_cancelled))


def test_a_cancel_reaches_a_request_that_is_being_handed_on_just_then() -> None:
    """The engine has it already, and the way there still knows it."""

    async def scenario(wire: Wire) -> None:
        from mtplx_proto.v1 import system_pb2

        call = wire.generation.Generate(wire.ask())
        await eventually(lambda: wire.engine.jobs)
        id = wire.engine.jobs[0].request.id
        with wire.early.enter(EarlyCall(id, "me", "a")):
            assert (await wire.system.Cancel(system_pb2.CancelRequest(id=id))).found
        assert [event async for event in call][-1].final.stop_origin == "operator"

    play(scenario, ScriptedEngine(until_cancelled))


def test_an_operator_cancels_what_still_loads() -> None:
    async def scenario(wire: Wire) -> None:
        from mtplx_proto.v1 import system_pb2

        wire.models.loader.hold()
        call = wire.generation.Generate(wire.ask())
        await eventually(wire.models.loader.begun.is_set)
        status = await wire.system.Status(system_pb2.StatusRequest())
        assert [(entry.state, entry.model) for entry in status.in_flight] == [("load", "a")]
        assert (await wire.system.Cancel(system_pb2.CancelRequest(id=status.in_flight[0].id))).found
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for _ in call:
                pass
        assert ended.value.code() == grpc.StatusCode.CANCELLED
        assert "operator" in (ended.value.details() or "")
        await eventually(lambda: not wire.models.residency.views())

    play(scenario)


def test_loading_is_visible_and_a_client_that_leaves_stops_it() -> None:
    async def scenario(wire: Wire) -> None:
        wire.models.loader.hold()
        call = wire.generation.Generate(wire.ask())
        async for event in call:
            assert event.progress.stage == "load"
            if event.progress.done:
                break
        call.cancel()
        await eventually(lambda: not wire.models.residency.views())
        await is_idle(wire)

    play(scenario)


def test_a_client_that_never_reads_is_cut_off_and_told() -> None:
    """Events pile up behind the socket's buffers until the bound; then the request is cancelled."""

    def flood(job: Job) -> Iterator[Event]:
        for _ in range(20 * UNREAD_LIMIT):
            yield Text("x" * 1000, (5,))
            if job.cancelled.is_set():
                break
        yield finished(job, "cancelled", job.origin or "nobody")

    async def scenario(wire: Wire) -> None:
        call = wire.generation.Generate(wire.ask())
        await eventually(lambda: wire.engine.jobs and wire.engine.jobs[0].finished.is_set())
        events = [event async for event in call]
        final = events[-1].final
        assert (final.finish_reason, final.stop_origin) == ("cancelled", "client")
        assert "read faster" in final.message
        await is_idle(wire)

    play(scenario, ScriptedEngine(flood))


def test_a_client_that_never_reads_has_no_row_one_round_after_its_bound() -> None:
    """Rounds go on while others are served; the unread one ends with the first round after its bound."""
    rounds = threading.Semaphore(0)
    played: list[bool] = []

    def row(job: Job) -> Iterator[Event]:
        while not job.cancelled.is_set():
            rounds.acquire()
            played.append(job.cancelled.is_set())
            yield Text("x" * 100_000, (5,))
        yield finished(job, "cancelled", job.origin)

    async def scenario(wire: Wire) -> None:
        call = wire.generation.Generate(wire.ask())
        await eventually(lambda: wire.engine.jobs)
        job = wire.engine.jobs[0]
        while not job.finished.is_set():
            before = len(played)
            rounds.release()
            await eventually(lambda before=before: len(played) > before or job.finished.is_set())
            await asyncio.sleep(0)
            assert before < 200, "it goes on unread"
        assert sum(played) <= 1
        assert job.origin == "client"
        final = [event async for event in call][-1].final
        assert (final.finish_reason, final.stop_origin) == ("cancelled", "client")
        await is_idle(wire)

    play(scenario, ScriptedEngine(row), unread_limit=8)


def test_progress_of_the_engine_is_passed_on() -> None:
    def slowly(job: Job) -> Iterator[Event]:
        yield Progress("queue", 0, 2)
        yield Progress("prefill", 512, 1024)
        yield finished(job)

    async def scenario(wire: Wire) -> None:
        events = [event async for event in wire.generation.Generate(wire.ask())]
        seen = [
            (e.progress.stage, e.progress.done, e.progress.unit) for e in events if e.HasField("progress")
        ]
        assert seen[-2:] == [("queue", 0, "requests"), ("prefill", 512, "tokens")]

    play(scenario, ScriptedEngine(slowly))


def test_a_full_queue_is_a_status_with_a_time_to_retry_and_frees_the_model() -> None:
    async def scenario(wire: Wire) -> None:
        wire.engine.refuses = ResourceExhausted("the queue is full", needed=1, retry_after_s=2.0)
        assert (await refusal(wire, wire.ask())).code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await is_idle(wire)

    play(scenario)


def test_a_text_no_tokenisation_makes_short_is_refused_untokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(wire: Wire) -> None:
        tokenised: list[str] = []
        monkeypatch.setattr(ByteTokenizer, "encode", lambda _, text: tokenised.append(text) or [1])
        for request in (
            wire.ask("x" * 65, raw=True),
            generation_pb2.GenerateRequest(
                model="a",
                chat=generation_pb2.Chat(messages=[generation_pb2.Message(role="user", content="x" * 65)]),
            ),
        ):
            error = await refusal(wire, request)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "65 bytes are at least 65 tokens, the context holds 64" in (error.details() or "")
        assert tokenised == []
        await is_idle(wire)

    play(scenario)


def test_only_what_the_context_holds_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(wire: Wire) -> None:
        weighed: list[int] = []
        monkeypatch.setattr(wire.models.residency, "check_context", lambda _, tokens: weighed.append(tokens))
        for asked in (9, 10**9):
            _ = [event async for event in wire.generation.Generate(wire.ask(max_tokens=asked))]
        assert weighed == [11, 64]

    play(scenario)


def test_prompts_are_measured_against_the_context_before_work() -> None:
    async def scenario(wire: Wire) -> None:
        error = await refusal(wire, wire.ask("x" * 64, raw=True))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "64 tokens, the context holds 64" in (error.details() or "")
        assert not wire.engine.jobs
        async for _ in wire.generation.Generate(wire.ask("x" * 63, raw=True)):
            pass
        await is_idle(wire)

    play(scenario)


def test_token_ids_go_through_unchanged_and_unknown_ones_are_refused() -> None:
    async def scenario(wire: Wire) -> None:
        def ids(*tokens: int) -> generation_pb2.GenerateRequest:
            return generation_pb2.GenerateRequest(model="a", tokens=generation_pb2.TokenIds(ids=tokens))

        async for _ in wire.generation.Generate(ids(3, 255)):
            pass
        assert wire.engine.jobs[0].request.prompt == [3, 255]
        assert "256" in ((await refusal(wire, ids(256))).details() or "")
        beyond = await refusal(
            wire, ids(*[256] * 64)
        )  # refused by their number, before anybody looks at them
        assert "64 tokens, the context holds 64" in (beyond.details() or "")

    play(scenario)


def test_depth_follows_request_then_model_and_stays_below_the_heads_limit() -> None:
    async def scenario(wire: Wire) -> None:
        for fields in ({}, {"depth": common_pb2.Depth(auto=True)}, {"plain": True}):
            async for _ in wire.generation.Generate(wire.ask(**fields)):
                pass
        asked = [(job.request.depth, job.request.auto) for job in wire.engine.jobs]
        assert asked == [(8, True), (8, True), (0, False)]
        error = await refusal(wire, wire.ask(depth=common_pb2.Depth(fixed=9)))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "9" in (error.details() or "")
        assert "8" in (error.details() or "")

    play(scenario)


def test_a_depth_without_a_head_is_a_failed_precondition() -> None:
    async def scenario(wire: Wire) -> None:
        wire.models.residency.acquire("a", headless=True).result(30).release()
        error = await refusal(wire, wire.ask(depth=common_pb2.Depth(fixed=1)))
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        async for _ in wire.generation.Generate(wire.ask()):
            pass
        assert wire.engine.jobs[0].request.depth == 0

    play(scenario)


def test_without_a_name_the_configured_model_is_taken_then_the_only_resident() -> None:
    async def configured(wire: Wire) -> None:
        async for _ in wire.generation.Generate(wire.ask(model="")):
            pass
        assert wire.engine.jobs[0].request.model.name == "a"

    async def resident(wire: Wire) -> None:
        error = await refusal(wire, wire.ask(model=""))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        wire.models.load("a")
        async for _ in wire.generation.Generate(wire.ask(model="")):
            pass

    play(configured, model="a")
    play(resident)


def test_unknown_models_are_not_found() -> None:
    async def scenario(wire: Wire) -> None:
        error = await refusal(wire, wire.ask(model="nowhere"))
        assert error.code() == grpc.StatusCode.NOT_FOUND

    play(scenario)


def test_fifty_parallel_streams_each_get_their_own_text() -> None:
    def echo(job: Job) -> Iterator[Event]:
        for token in job.request.prompt:
            yield Text(chr(token), (token,))
        yield finished(job)

    async def scenario(wire: Wire) -> None:
        async def one(number: int) -> None:
            prompt = f"number {number}"
            with contextlib.suppress(asyncio.CancelledError):
                stream = wire.generation.Generate(wire.ask(prompt, raw=True))
                text = "".join([event.text.text async for event in stream])
                assert text == prompt

        await asyncio.gather(*(one(number) for number in range(50)))
        await is_idle(wire)

    play(scenario, ScriptedEngine(echo))


def test_a_depth_above_the_heads_limit_loads_nothing() -> None:
    async def scenario(wire: Wire) -> None:
        error = await refusal(wire, wire.ask(depth=common_pb2.Depth(fixed=99)))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "up to 8" in (error.details() or "")
        assert wire.models.loader.events == []
        assert wire.models.residency.views() == []
        await is_idle(wire)

    play(scenario)
