"""Load, Unload and their wishes over the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import common_pb2, models_pb2
from mtplxd.residency.plan import GIB
from support.rpc_rig import Wire, wired


def play(scenario: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired() as wire:
            await scenario(wire)

    asyncio.run(main())


async def load(wire: Wire, **fields: Any) -> list[models_pb2.LoadEvent]:
    return [event async for event in wire.packs.Load(models_pb2.LoadRequest(name="a", **fields))]


async def refusal(wire: Wire, **fields: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await load(wire, **fields)
    return refused.value


def test_a_load_shows_its_progress_and_ends_with_the_model() -> None:
    async def scenario(wire: Wire) -> None:
        events = await load(wire, keep_alive_s=600, depth=common_pb2.Depth(fixed=2))
        assert [event.WhichOneof("event") for event in events][-1] == "resident"
        assert all(event.progress.stage == "load" for event in events[:-1])
        resident = events[-1].resident
        assert (resident.name, resident.state, resident.tier) == ("a", "ready", "unverified")
        assert (resident.keep_alive_s, resident.depth, resident.in_use) == (600, 2, 0)

    play(scenario)


def test_a_loads_depth_becomes_the_models_default() -> None:
    async def scenario(wire: Wire) -> None:
        await load(wire, depth=common_pb2.Depth(fixed=3))
        async for _ in wire.generation.Generate(wire.ask()):
            pass
        assert wire.engine.jobs[0].request.depth == 3

    play(scenario)


def test_a_plain_load_has_no_head_and_is_not_given_for_one_that_has() -> None:
    async def scenario(wire: Wire) -> None:
        resident = (await load(wire, plain=True))[-1].resident
        assert (resident.depth, resident.depth_max) == (0, 0)
        assert (await refusal(wire, depth=common_pb2.Depth(fixed=1))).code() == (
            grpc.StatusCode.FAILED_PRECONDITION
        )
        await wire.packs.Unload(models_pb2.UnloadRequest(name="a"))
        await load(wire)
        assert (await refusal(wire, plain=True)).code() == grpc.StatusCode.FAILED_PRECONDITION

    play(scenario)


@pytest.mark.parametrize(
    "bad", [{"keep_alive_s": -2.0}, {"depth_max": 0}, {"depth": common_pb2.Depth(fixed=9)}]
)
def test_senseless_wishes_are_bad_arguments(bad: dict[str, Any]) -> None:
    async def scenario(wire: Wire) -> None:
        assert (await refusal(wire, **bad)).code() == grpc.StatusCode.INVALID_ARGUMENT

    play(scenario)


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    async def scenario(wire: Wire) -> None:
        wire.models.catalog.needs["a"] = 500 * GIB
        error = await refusal(wire)
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(500 * GIB) in (error.details() or "")

    play(scenario)


def test_unloading_names_what_was_freed() -> None:
    async def scenario(wire: Wire) -> None:
        await load(wire)
        reply = await wire.packs.Unload(models_pb2.UnloadRequest(name="a"))
        assert (reply.name, reply.bytes_freed, reply.resident.state) == ("a", 110, "ready")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.packs.Unload(models_pb2.UnloadRequest(name="a"))
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND

    play(scenario)


def test_a_model_in_memory_is_not_removed_from_the_disk() -> None:
    async def scenario(wire: Wire) -> None:
        await load(wire)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.packs.Remove(models_pb2.RemoveRequest(name="a"))
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert wire.models.catalog.packs["a"].path.is_dir()

    play(scenario)
