"""A request may say how long its model stays; who said so is shown, and what makes no time is refused before work."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import models_pb2, system_pb2
from support.rpc_rig import Wire, eventually, wired


async def ask(wire: Wire, **fields: Any) -> None:
    async for _ in wire.generation.Generate(wire.ask(**fields)):
        pass


async def resident(wire: Wire) -> tuple[float, str, bool]:
    [model] = (await wire.system.Status(system_pb2.StatusRequest())).models
    return model.keep_alive_s, model.keep_alive_from, model.pinned


def test_the_last_one_who_says_a_time_is_believed_and_named() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), wired() as wire:
            await ask(wire)
            assert await resident(wire) == (-1.0, "default", False)
            await ask(wire, keep_alive_s=60)
            assert await resident(wire) == (60.0, "request", False)
            await ask(wire)
            assert await resident(wire) == (60.0, "request", False)
            async for _ in wire.packs.Load(models_pb2.LoadRequest(name="a", keep_alive_s=600)):
                pass
            assert await resident(wire) == (600.0, "load", False)

    asyncio.run(scenario())


def test_zero_unloads_the_model_once_its_answer_is_there() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), wired() as wire:
            await ask(wire, keep_alive_s=0)
            await eventually(lambda: not wire.models.states())
            assert wire.models.loader.events == ["load a", "free a"]

    asyncio.run(scenario())


def test_a_time_that_is_none_is_refused_before_the_model_is_loaded() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), wired() as wire:
            with pytest.raises(grpc.aio.AioRpcError, match="keep-alive is out of range") as refused:
                await ask(wire, keep_alive_s=-2)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert wire.models.loader.events == []

    asyncio.run(scenario())
