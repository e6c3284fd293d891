"""Answers are refused for a pack's tier unless its user agreed; measuring and verifying never ask."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from mtplx_proto.v1 import common_pb2, models_pb2
from support.rpc_rig import Wire, wired

UNVERIFIED = ("unverified", ("no verification record for these files",))
HEADLESS = ("no-mtp-head", ("no MTP head in its files, it decodes plainly",))
BROKEN = ("incompatible", ("missing: mtp.fc.weight", "wrong shape: mtp.norm.weight [8] not [16]"))
Tier = tuple[str, tuple[str, ...]]


def play(scenario: Any, tier: Tier) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired() as wire:
            wire.models.catalog.tier, wire.models.catalog.reasons = tier
            wire.models.catalog.whole = tier[0] in ("verified", "unverified")
            await scenario(wire)

    asyncio.run(main())


async def generate(wire: Wire, **consent: bool) -> None:
    async for _ in wire.generation.Generate(wire.ask(**consent)):
        pass


async def load(wire: Wire, **fields: Any) -> None:
    async for _ in wire.packs.Load(models_pb2.LoadRequest(name="a", **fields)):
        pass


async def said(call: Any) -> dict[str, str]:
    """What a FAILED_PRECONDITION's details say, its reason code under `reason`."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    trailing = dict(refused.value.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])  # type: ignore[arg-type]
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return {**info.metadata, "reason": info.reason}


@pytest.mark.parametrize("ask", [generate, load])
def test_what_nobody_verified_is_refused_with_two_ways_on_and_nothing_is_loaded(ask: Any) -> None:
    async def scenario(wire: Wire) -> None:
        told = await said(ask(wire))
        assert told["value"] == "a: no verification record for these files"
        assert "`mtplx verify a`" in told["fix"]
        assert "--force" in told["fix"]
        assert told["reason"] == "TIER_REFUSED"
        assert wire.models.loader.events == []
        await ask(wire, force=True)
        assert wire.models.loader.events == ["load a"]

    play(scenario, UNVERIFIED)


def test_the_consent_of_one_request_is_not_the_next_ones() -> None:
    async def scenario(wire: Wire) -> None:
        await load(wire, force=True)
        await generate(wire, force=True)
        assert "--force" in (await said(generate(wire)))["fix"]
        assert "--force" in (await said(load(wire)))["fix"]
        assert len(wire.engine.jobs) == 1

    play(scenario, UNVERIFIED)


def test_plain_decoding_needs_no_verified_head() -> None:
    async def scenario(wire: Wire) -> None:
        await generate(wire, plain=True)
        assert wire.engine.jobs[0].request.depth == 0
        await said(generate(wire, depth=common_pb2.Depth(fixed=0)))  # type: ignore[arg-type]

    play(scenario, UNVERIFIED)


@pytest.mark.parametrize("ask", [generate, load])
def test_a_pack_without_a_head_decodes_plainly_when_told_to(ask: Any) -> None:
    async def scenario(wire: Wire) -> None:
        for consent in ({}, {"force": True}):
            told = await said(ask(wire, **consent))
            assert "--plain" in told["fix"]
            assert "--force" not in told["fix"]
        await ask(wire, plain=True)

    play(scenario, HEADLESS)


@pytest.mark.parametrize("ask", [generate, load])
def test_force_does_not_make_a_broken_head_whole_and_every_reason_is_told(ask: Any) -> None:
    async def scenario(wire: Wire) -> None:
        for consent in ({}, {"force": True}):
            told = await said(ask(wire, **consent))
            assert told["value"] == f"a: {'; '.join(BROKEN[1])}"
        await ask(wire, plain=True)

    play(scenario, BROKEN)


def test_a_pack_that_was_verified_while_it_is_in_memory_needs_no_consent_any_more() -> None:
    async def scenario(wire: Wire) -> None:
        await load(wire, force=True)
        wire.models.catalog.tier = "verified"
        wire.models.residency.rejudge(wire.models.catalog.packs["a"])
        await generate(wire)

    play(scenario, UNVERIFIED)


def test_a_limit_above_what_the_layers_can_do_is_a_bad_argument() -> None:
    async def scenario(wire: Wire) -> None:
        wire.models.catalog.depth_limit = 3
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await load(wire, depth_max=4)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "3" in (refused.value.details() or "")
        await load(wire, depth_max=2)

    play(scenario, ("verified", ()))
