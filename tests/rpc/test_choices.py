"""Several answers to one prompt: one stream, one lease, a request of the engine and a seed each, all or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import common_pb2, generation_pb2, system_pb2
from mtplxd.engine.events import Event, Text
from mtplxd.errors import ResourceExhausted
from support.fake_engine import Job, ScriptedEngine, finished, until_cancelled
from support.rpc_rig import Wire, eventually, wired


def play(scenario: Any, engine: ScriptedEngine | None = None) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired(engine) as wire:
            await scenario(wire)

    asyncio.run(main())


async def answers(wire: Wire, **fields: Any) -> list[generation_pb2.GenerateEvent]:
    return [event async for event in wire.generation.Generate(wire.ask(**fields))]


async def is_idle(wire: Wire) -> None:
    await eventually(lambda: all(view.in_use == 0 for view in wire.models.residency.views()))
    await eventually(lambda: not wire.early.all())


def say_seed(job: Job) -> Iterator[Event]:
    yield Text(str(job.request.sampler.seed), (5,))
    yield finished(job)


def test_each_answer_has_its_number_its_seed_and_its_own_end() -> None:
    async def scenario(wire: Wire) -> None:
        sampler = common_pb2.SamplerRequest(seed=7)
        events = await answers(wire, n=3, sampler=sampler, priority="background")
        texts = {event.choice: event.text.text for event in events if event.HasField("text")}
        assert texts == {0: "7", 1: "8", 2: "9"}
        finals = {event.choice: event.final.sampler.seed for event in events if event.HasField("final")}
        assert finals == {0: 7, 1: 8, 2: 9}
        requests = [job.request for job in wire.engine.jobs]
        assert len({request.id for request in requests}) == 3
        assert {tuple(request.prompt) for request in requests} == {tuple(b"hi")}
        assert {request.priority for request in requests} == {"background"}
        await is_idle(wire)

    play(scenario, ScriptedEngine(say_seed))


def test_seeds_go_round_and_a_drawn_one_is_followed_by_its_successors() -> None:
    async def scenario(wire: Wire) -> None:
        await answers(wire, n=2, sampler=common_pb2.SamplerRequest(seed=2**64 - 1))
        await answers(wire, n=2)
        seeds = [job.request.sampler.seed for job in wire.engine.jobs]
        assert seeds[:2] == [2**64 - 1, 0]
        assert seeds[3] == (seeds[2] + 1) % 2**64

    play(scenario, ScriptedEngine(say_seed))


def test_one_answer_is_numbered_nought_and_interactive() -> None:
    async def scenario(wire: Wire) -> None:
        events = await answers(wire)
        assert {event.choice for event in events} == {0}
        assert wire.engine.jobs[0].request.priority == "interactive"
        assert wire.engine.jobs[0].request.id.isalnum()

    play(scenario)


def test_the_stream_ends_with_the_last_answer_whichever_that_is() -> None:
    """Choice 0 waits for choice 1 to have ended; what comes after an end is of the others."""

    def first_last(job: Job) -> Iterator[Event]:
        if job.request.id.endswith("/0"):
            job.go.wait(30)
        yield Text("x", (5,))
        yield finished(job)

    async def scenario(wire: Wire) -> None:
        call = wire.generation.Generate(wire.ask(n=2))
        seen = []
        async for event in call:
            seen.append((event.WhichOneof("event"), event.choice))
            if seen[-1] == ("final", 1):
                wire.engine.jobs[0].go.set()
        assert seen[-4:] == [("text", 1), ("final", 1), ("text", 0), ("final", 0)]
        assert wire.models.residency.views()[0].in_use == 0

    play(scenario, ScriptedEngine(first_last))


def test_the_model_is_held_until_the_last_answer_has_ended() -> None:
    def wait(job: Job) -> Iterator[Event]:
        yield Text("x", (5,))
        job.go.wait(30)
        yield finished(job)

    async def scenario(wire: Wire) -> None:
        call = asyncio.ensure_future(answers(wire, n=2))
        await eventually(lambda: len(wire.engine.jobs) == 2)
        wire.engine.jobs[0].go.set()
        await eventually(wire.engine.jobs[0].finished.is_set)
        assert wire.models.residency.views()[0].in_use == 1
        wire.engine.jobs[1].go.set()
        assert sum(event.HasField("final") for event in await call) == 2
        await is_idle(wire)

    play(scenario, ScriptedEngine(wait))


def test_a_client_that_leaves_ends_all_of_them() -> None:
    async def scenario(wire: Wire) -> None:
        call = wire.generation.Generate(wire.ask(n=3))
        async for event in call:
            if event.HasField("text"):
                break
        await eventually(lambda: len(wire.engine.jobs) == 3)
        call.cancel()
        await eventually(lambda: all(job.finished.is_set() for job in wire.engine.jobs))
        assert {job.origin for job in wire.engine.jobs} == {"client"}
        await is_idle(wire)

    play(scenario, ScriptedEngine(until_cancelled))


def test_an_operator_cancels_the_whole_call_or_one_answer() -> None:
    async def scenario(wire: Wire) -> None:
        async def cancel(id: str) -> bool:
            return bool((await wire.system.Cancel(system_pb2.CancelRequest(id=id))).found)

        call = wire.generation.Generate(wire.ask(n=3))
        id = dict(await call.initial_metadata())["mtplx-request-id"]
        await eventually(lambda: len(wire.engine.jobs) == 3)
        assert await cancel(f"{id}/1")
        await eventually(wire.engine.jobs[1].finished.is_set)
        assert [job.finished.is_set() for job in wire.engine.jobs] == [False, True, False]
        assert await cancel(id)
        events = [event async for event in call]
        origins = [event.final.stop_origin for event in events if event.HasField("final")]
        assert origins == ["operator"] * 3
        await eventually(lambda: all(job.finished.is_set() for job in wire.engine.jobs))
        assert not await cancel(id)
        assert not await cancel(f"{id}/1")

    play(scenario, ScriptedEngine(until_cancelled))


def test_a_queue_that_takes_only_some_of_them_gets_none() -> None:
    class Full(ScriptedEngine):
        def submit(self, request: Any, sink: Any) -> None:
            if len(self.jobs) == 2:
                self.refuses = ResourceExhausted("the queue is full", retry_after_s=2.0)
            super().submit(request, sink)

    async def scenario(wire: Wire) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await answers(wire, n=3)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await eventually(lambda: all(job.finished.is_set() for job in wire.engine.jobs))
        assert [job.origin for job in wire.engine.jobs] == ["client", "client"]
        await is_idle(wire)

    play(scenario, Full(until_cancelled))


def test_a_model_is_not_given_back_while_a_part_of_a_refused_call_still_runs() -> None:
    def slow_to_end(job: Job) -> Iterator[Event]:
        job.cancelled.wait(30)
        job.go.wait(30)
        yield finished(job, "cancelled", job.origin)

    class Full(ScriptedEngine):
        def submit(self, request: Any, sink: Any) -> None:
            if self.jobs:
                raise ResourceExhausted("the queue is full", retry_after_s=2.0)
            super().submit(request, sink)

    async def scenario(wire: Wire) -> None:
        with pytest.raises(grpc.aio.AioRpcError):
            await answers(wire, n=2)
        assert wire.models.residency.views()[0].in_use == 1
        wire.engine.jobs[0].go.set()
        await is_idle(wire)

    play(scenario, Full(slow_to_end))
