"""What every call passes through: ids, handshake, bugs, draining; and health, reflection and Watch beside it."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from mtplx_proto.v1 import models_pb2, system_pb2
from mtplxd import PROTOCOL, __version__
from support.fake_engine import ScriptedEngine, until_cancelled
from support.rpc_rig import Wire, eventually, wired

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def play(scenario: Any, engine: ScriptedEngine | None = None) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired(engine) as wire:
            await scenario(wire)

    asyncio.run(main())


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


async def read_out(stream: Any) -> None:
    """Read until the stream ends, however it ends."""
    while await stream.read() is not grpc.aio.EOF:
        pass


def status(wire: Wire, **arguments: Any) -> Any:
    return wire.system.Status(system_pb2.StatusRequest(), **arguments)


def test_every_answer_begins_with_versions_and_an_id_of_its_own() -> None:
    async def scenario(wire: Wire) -> None:
        said = [dict(await call.initial_metadata()) for call in (status(wire), status(wire))]
        assert said[0]["mtplx-protocol"] == str(PROTOCOL)
        assert said[0]["mtplx-version"] == __version__
        assert said[0]["mtplx-request-id"] != said[1]["mtplx-request-id"]

    play(scenario)


@pytest.mark.parametrize(
    ("protocol", "side"), [(PROTOCOL + 1, "update the daemon"), (0, "update the client")]
)
def test_another_protocol_is_refused_with_the_side_to_update(protocol: int, side: str) -> None:
    async def scenario(wire: Wire) -> None:
        error = await refusal(status(wire, metadata=(("mtplx-protocol", str(protocol)),)))
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert side in (error.details() or "")

    play(scenario)


def test_hello_refuses_another_protocol_and_names_itself_otherwise() -> None:
    async def scenario(wire: Wire) -> None:
        error = await refusal(wire.system.Hello(system_pb2.HelloRequest(version="9", protocol=PROTOCOL + 1)))
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        reply = await wire.system.Hello(system_pb2.HelloRequest(version=__version__, protocol=PROTOCOL))
        assert (reply.version, reply.protocol) == (__version__, PROTOCOL)

    play(scenario)


@pytest.mark.parametrize("nonsense", ["one", "-1", "9" * 40])
def test_nonsense_in_the_handshake_is_a_bad_argument(nonsense: str) -> None:
    async def scenario(wire: Wire) -> None:
        error = await refusal(status(wire, metadata=(("mtplx-protocol", nonsense),)))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT

    play(scenario)


def test_a_bug_is_internal_with_an_id_and_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(wire: Wire) -> None:
        def broken() -> None:
            raise ZeroDivisionError("inner words")

        monkeypatch.setattr(wire.models.residency, "views", broken)
        error = await refusal(status(wire))
        assert error.code() == grpc.StatusCode.INTERNAL
        assert "inner words" not in (error.details() or "")
        assert "mtplx logs" in (error.details() or "")

    play(scenario)


def test_health_knows_every_service() -> None:
    async def scenario(wire: Wire) -> None:
        health = health_pb2_grpc.HealthStub(wire.channel)
        for name in ("", "mtplx.v1.Generation", "mtplx.v1.Models", "mtplx.v1.System"):
            assert (await health.Check(health_pb2.HealthCheckRequest(service=name))).status == SERVING
        assert (await refusal(health.Check(health_pb2.HealthCheckRequest(service="x")))).code() == (
            grpc.StatusCode.NOT_FOUND
        )

    play(scenario)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_lists_the_services(version: str) -> None:
    async def scenario(wire: Wire) -> None:
        reflect = wire.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = [answer async for answer in reflect(iter([asked]))]
        names = {service.name for service in answers[0].list_services_response.service}
        assert {"mtplx.v1.Generation", "mtplx.v1.Models", "mtplx.v1.System"} < names

    play(scenario)


def test_a_drain_refuses_work_answers_questions_and_ends_idle_streams() -> None:
    async def scenario(wire: Wire) -> None:
        health = health_pb2_grpc.HealthStub(wire.channel)
        reflection = reflection_pb2_grpc.ServerReflectionStub(wire.channel)
        running = wire.generation.Generate(wire.ask())
        await eventually(lambda: wire.engine.jobs)
        idle = [
            wire.system.Watch(system_pb2.WatchRequest(interval_s=3600)),
            health.Watch(health_pb2.HealthCheckRequest()),
            reflection.ServerReflectionInfo(),
        ]
        await idle[0].read()
        await idle[1].read()
        await wire.server.enter_drain()
        wire.edge.drain()
        for stream in idle:
            assert (await refusal(read_out(stream))).code() == grpc.StatusCode.UNAVAILABLE
        for work in (
            wire.generation.Generate(wire.ask()).read(),
            wire.packs.Unload(models_pb2.UnloadRequest(name="a")),
            wire.system.Watch(system_pb2.WatchRequest()).read(),
        ):
            assert (await refusal(work)).code() == grpc.StatusCode.UNAVAILABLE
        assert (await status(wire)).state == "draining"
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING
        assert not await wire.edge.wait_quiet(0.05), "a generation is still in flight"
        wire.engine.cancel(wire.engine.jobs[0].request.id, "shutdown")
        events = [event async for event in running]
        assert events[-1].final.stop_origin == "shutdown"
        assert await wire.edge.wait_quiet(30)

    play(scenario, ScriptedEngine(until_cancelled))


def test_watch_sends_a_status_at_once_and_refuses_a_senseless_interval() -> None:
    async def scenario(wire: Wire) -> None:
        watch = wire.system.Watch(system_pb2.WatchRequest(interval_s=3600))
        assert (await watch.read()).state == "serving"
        for bad in (-1.0, float("nan")):
            stream = wire.system.Watch(system_pb2.WatchRequest(interval_s=bad))
            assert (await refusal(stream.read())).code() == grpc.StatusCode.INVALID_ARGUMENT

    play(scenario)


def test_a_hundred_watchers_share_one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stream costs does not grow with the work of describing the daemon."""

    async def scenario(wire: Wire) -> None:
        built = 0
        views = wire.models.residency.views

        def counted() -> Any:
            nonlocal built
            built += 1
            return views()

        monkeypatch.setattr(wire.models.residency, "views", counted)
        monkeypatch.setattr("mtplxd.rpc.status.FRESH_S", 60.0)
        watchers = [wire.system.Watch(system_pb2.WatchRequest(interval_s=3600)) for _ in range(100)]
        await asyncio.gather(*(watcher.read() for watcher in watchers))
        assert built == 1
        await status(wire)
        assert built == 2, "a question is answered with a picture of its own moment"

    play(scenario)


def test_shutdown_answers_and_begins_the_stop() -> None:
    async def scenario(wire: Wire) -> None:
        reply = await wire.system.Shutdown(system_pb2.ShutdownRequest())
        assert reply.pid > 0
        await eventually(lambda: wire.stops)

    play(scenario)
