"""An engine that has work and does not go on: streams end and say so, health turns, and its beat brings all back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from mtplx_proto.v1 import system_pb2
from mtplxd.engine.events import Event, Text
from mtplxd.engine.snapshot import Counters, EngineSnapshot
from mtplxd.errors import DataLoss
from mtplxd.residency.loader import ModelLoader
from mtplxd.rpc.holding import hold_engine
from mtplxd.rpc.watchdog import LONGEST_STEP_S, StallRule, has_work
from mtplxd.tune.measure import Progress
from support.fake_engine import Job, ScriptedEngine, finished
from support.rpc_rig import STALL_S, Wire, eventually, wired

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def looks(rule: StallRule, *seen: tuple[float, float, bool]) -> list[bool]:
    """The rule's word at each (now, time of the last beat, busy)."""
    return [rule.look(now, now - beat, busy) for now, beat, busy in seen]


def every(step: float, begin: float, end: float) -> list[float]:
    return [begin + step * at for at in range(round((end - begin) / step) + 1)]


def test_silence_with_work_is_a_stall_after_the_limit_and_not_before() -> None:
    rule = StallRule(10.0)
    told = looks(rule, *((now, -1.0, True) for now in every(1.0, 0.0, 12.0)))
    assert told == [False] * 10 + [True] * 3


def test_a_beat_ends_a_stall_at_once() -> None:
    rule = StallRule(10.0)
    looks(rule, *((now, -1.0, True) for now in every(1.0, 0.0, 12.0)))
    assert looks(rule, (13.0, 12.5, True)) == [False]
    assert not any(looks(rule, *((now, 12.5, True) for now in every(1.0, 14.0, 22.0))))
    assert looks(rule, (23.0, 12.5, True)) == [True]


def test_an_engine_without_work_never_stalls_and_the_time_before_work_does_not_count() -> None:
    rule = StallRule(10.0)
    assert not any(looks(rule, *((now, -1.0, False) for now in every(1.0, 0.0, 500.0))))
    assert looks(rule, (501.0, -1.0, True)) == [False]


def test_progress_in_a_long_prefill_is_no_stall() -> None:
    rule = StallRule(10.0)
    chunks = [(now, 8.0 * (now // 8.0), True) for now in every(1.0, 0.0, 400.0)]
    assert not any(looks(rule, *chunks))


def test_a_process_that_was_stopped_or_slept_had_no_chance_to_beat() -> None:
    rule = StallRule(10.0)
    looks(rule, (0.0, 0.0, True), (1.0, 0.5, True))
    assert looks(rule, (3601.0, 0.9, True)) == [False]
    assert looks(rule, (3602.0, 3601.5, True)) == [False]
    assert LONGEST_STEP_S < 10.0


@pytest.mark.parametrize(
    ("fields", "busy"),
    [({}, False), ({"running": 1}, True), ({"waiting": 1}, True), ({"busy_with": "measuring"}, True)],
)
def test_work_is_what_somebody_waits_for(fields: dict[str, Any], busy: bool) -> None:
    idle = {"running": 0, "waiting": 0, "in_flight": (), "counters": Counters(0.0), "alive": True}
    assert has_work(EngineSnapshot(**{"busy_with": "", **idle, **fields})) is busy


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def stuck(job: Job) -> Iterator[Event]:
    """Two tokens, then silence until the test says so."""
    yield Text("a", (5, 6))
    job.go.wait(30)
    yield finished(job, "cancelled", job.origin)


def play(scenario: Any) -> None:
    async def main() -> None:
        clock = Clock()
        async with asyncio.timeout(60), wired(ScriptedEngine(stuck), clock=clock) as wire:
            await scenario(wire, clock)

    asyncio.run(main())


async def pass_time(wire: Wire, clock: Clock, seconds: float) -> None:
    """The engine is silent for so long, and is looked at every second."""
    for _ in range(round(seconds)):
        clock.now += 1.0
        wire.engine.heartbeat_age_s += 1.0
        await wire.watchdog.look()


async def health(wire: Wire) -> Any:
    stub = health_pb2_grpc.HealthStub(wire.channel)
    return (await stub.Check(health_pb2.HealthCheckRequest())).status


async def first_text(call: Any) -> None:
    async for event in call:
        if event.HasField("text"):
            return


def test_a_stall_ends_streams_with_their_count_and_what_to_do_and_recovers() -> None:
    async def scenario(wire: Wire, clock: Clock) -> None:
        call = wire.generation.Generate(wire.ask(n=2))
        await first_text(call)
        await eventually(lambda: len(wire.engine.jobs) == 2)
        await pass_time(wire, clock, STALL_S)
        assert await health(wire) == SERVING
        await pass_time(wire, clock, 1)
        finals = {event.choice: event.final async for event in call if event.HasField("final")}
        assert sorted(finals) == [0, 1]
        for final in finals.values():
            assert (final.finish_reason, final.stop_origin) == ("error", "stall")
            assert "restart the daemon" in final.message
            assert (final.usage.prompt_tokens, final.usage.completion_tokens) == (2, 2)
        assert await health(wire) == NOT_SERVING
        assert [job.origin for job in wire.engine.jobs] == ["stall", "stall"]
        assert (await wire.system.Status(system_pb2.StatusRequest())).engine.stalled
        await is_refused(wire)
        for job in wire.engine.jobs:
            job.go.set()
        wire.engine.heartbeat_age_s = 0.0
        clock.now += 1.0
        await wire.watchdog.look()
        assert await health(wire) == SERVING
        assert not (await wire.system.Status(system_pb2.StatusRequest())).engine.stalled
        wire.engine.script = lambda job: iter([finished(job)])
        events = [event async for event in wire.generation.Generate(wire.ask())]
        assert events[-1].final.finish_reason == "stop"
        await eventually(lambda: wire.models.residency.views()[0].in_use == 0)

    play(scenario)


async def is_refused(wire: Wire) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in wire.generation.Generate(wire.ask()):
            pass
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "does not go on" in (refused.value.details() or "")


def test_a_request_that_waits_for_its_model_is_told_as_well() -> None:
    async def scenario(wire: Wire, clock: Clock) -> None:
        wire.models.loader.hold()
        wire.engine.busy_with = "loading"
        call = wire.generation.Generate(wire.ask())
        await eventually(wire.models.loader.begun.is_set)
        await pass_time(wire, clock, STALL_S + 1)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for _ in call:
                pass
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        wire.models.loader.gate.set()
        await eventually(lambda: not wire.early.all())

    play(scenario)


def test_a_drain_is_not_undone_by_an_engine_that_goes_on() -> None:
    async def scenario(wire: Wire, clock: Clock) -> None:
        call = wire.generation.Generate(wire.ask())
        await first_text(call)
        await pass_time(wire, clock, STALL_S + 1)
        await wire.server.enter_drain()
        wire.engine.heartbeat_age_s = 0.0
        clock.now += 1.0
        await wire.watchdog.look()
        assert not wire.watchdog.stalled
        assert await health(wire) == NOT_SERVING
        wire.engine.jobs[0].go.set()

    play(scenario)


def test_a_call_that_polls_or_tells_its_progress_beats() -> None:
    engine: Any = ScriptedEngine()

    class Held:
        def release(self) -> None:
            return

    def work(say: Any, poll: Any) -> int:
        assert poll() is None
        say(Progress(1, 2, 0.0))
        return engine.beats

    async def main() -> int:
        return await hold_engine(engine, cast(Any, Held()), "measuring", work, nothing)

    async def nothing(step: Progress) -> None:
        del step

    assert asyncio.run(main()) == 2


def test_every_step_of_a_load_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []
    told: list[tuple[int, int]] = []

    def load_model(_pack: Any, *, progress: Any, **_: Any) -> Any:
        for done in range(3):
            progress(done, 2)
        raise DataLoss("the rest is not there")

    monkeypatch.setattr("mtplxd.families.load.load_model", load_model)
    nothing: Any = None
    wish = {"plain": False, "depth_max": None, "cancelled": lambda: False}
    loader = ModelLoader(lambda: beats.append(len(told)), nothing)
    with pytest.raises(DataLoss):
        loader.load(nothing, progress=lambda *step: told.append(step), **wish)
    assert (told, beats) == ([(0, 2), (1, 2), (2, 2)], [0, 1, 2])
