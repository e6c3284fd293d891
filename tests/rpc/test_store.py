"""The store's verbs over the wire, before a real store: numbers, checks, trimming, wiping, and a session's blocks."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import models_pb2, sessions_pb2, store_pb2, system_pb2
from mtplxd.store.limits import Limits
from support.block_store import PLENTY, chain_of, offered_of
from support.rpc_rig import BLOCK, LIMIT_S, Wire, wired


def play(scenario: Any, **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired(**options) as wire:
            await scenario(wire)

    asyncio.run(main())


def keep(wire: Wire, ids: list[int], **facts: str) -> set[bytes]:
    """Keeps all whole blocks of these ids and a tail behind them; their names."""
    assert wire.disk is not None
    chain = chain_of(ids, BLOCK, **facts)
    whole = len(ids) // BLOCK
    lengths: list[int | None] = [None] * whole + ([len(ids) % BLOCK] if len(ids) % BLOCK else [])
    for place, length in enumerate(lengths):
        assert wire.disk.offer(offered_of(chain, place, length))
    assert wire.disk.flush(LIMIT_S)
    return {chain.name(place, length) for place, length in enumerate(lengths)}


async def stats(wire: Wire) -> Any:
    return await wire.store.Stats(store_pb2.StoreStatsRequest())


async def say(wire: Wire, session: str, prompt: str) -> list[int]:
    """A turn of a session; the ids it was made of."""
    _ = [event async for event in wire.generation.Generate(wire.ask(prompt, session=session))]
    return [*wire.engine.jobs[-1].request.prompt, 5, 6, 7]


def shared_ids(one: list[int], other: list[int]) -> list[int]:
    """What two lists of ids begin with in common."""
    return [pair[0] for pair in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


def test_numbers_are_those_of_the_store_and_of_its_limits() -> None:
    async def scenario(wire: Wire) -> None:
        keep(wire, list(range(20)))
        found = await stats(wire)
        assert (found.state, found.reason, found.blocks, found.block_tokens) == ("on", "", 3, BLOCK)
        assert found.folder == str(wire.home.store)
        assert found.bytes > 0
        assert found.raw_bytes > 0
        assert found.bytes_written >= found.bytes
        assert (found.size_limit, found.free_floor) == (PLENTY.size, 0)
        status = (await wire.system.Status(system_pb2.StatusRequest())).store
        assert (status.blocks, status.bytes, status.state) == (3, found.bytes, "on")

    play(scenario, limits=PLENTY)


def test_a_mode_is_told_and_a_limit_in_force_is_named() -> None:
    async def scenario(wire: Wire) -> None:
        assert (await stats(wire)).state == "write-only"

    play(scenario, limits=PLENTY, store="write-only")

    async def full(wire: Wire) -> None:
        assert wire.disk is not None
        wire.disk.offer(offered_of(chain_of(range(8), BLOCK), 0))
        wire.disk.flush(LIMIT_S)
        found = await stats(wire)
        assert found.state == "paused"
        assert found.reason
        assert {reason.name for reason in found.drop_reasons} == {"low disk"}

    play(full, limits=Limits(free_floor=1 << 60))


def test_verify_reads_every_block_and_counts_the_bad_ones() -> None:
    async def scenario(wire: Wire) -> None:
        keep(wire, list(range(40)))
        events = [event async for event in wire.store.Verify(store_pb2.StoreVerifyRequest())]
        assert [event.progress.done for event in events[:-1]] == [1, 2, 3, 4, 5]
        assert {(event.progress.stage, event.progress.unit) for event in events[:-1]} == {
            ("verify", "blocks")
        }
        verified = events[-1].verified
        assert (verified.blocks, verified.bad) == (5, 0)
        assert verified.bytes == (await stats(wire)).bytes
        victim = sorted((wire.home.store / "blocks").rglob("*.blk"))[0]
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
        events = [event async for event in wire.store.Verify(store_pb2.StoreVerifyRequest())]
        assert events[-1].verified.bad == 1
        assert (await stats(wire)).quarantined == 1

    play(scenario, limits=PLENTY)


def test_a_verification_whose_client_left_ends() -> None:
    async def scenario(wire: Wire) -> None:
        keep(wire, list(range(40)))
        call = wire.store.Verify(store_pb2.StoreVerifyRequest())
        await call.read()
        call.cancel()
        assert (await stats(wire)).blocks == 5

    play(scenario, limits=PLENTY)


def test_clearing_removes_blocks_here_and_in_memory_and_spares_sessions() -> None:
    async def scenario(wire: Wire) -> None:
        await say(wire, "work", "hi")
        keep(wire, list(range(20)))
        freed = await wire.store.Clear(store_pb2.StoreClearRequest())
        assert freed.bytes_freed > 0
        assert freed.sessions == 0
        assert wire.forgotten.is_set()
        found = await stats(wire)
        assert (found.blocks, found.bytes, found.sessions) == (0, 0, 1)
        assert list((wire.home.store / "blocks").rglob("*.blk")) == []

    play(scenario, limits=PLENTY)


def test_pruning_removes_what_was_set_aside() -> None:
    async def scenario(wire: Wire) -> None:
        keep(wire, list(range(8)))
        [block] = (wire.home.store / "blocks").rglob("*.blk")
        block.write_bytes(b"x" * 100)
        _ = [event async for event in wire.store.Verify(store_pb2.StoreVerifyRequest())]
        assert [path.stat().st_size for path in (wire.home.store / "quarantine").iterdir()] == [100]
        freed = await wire.store.Prune(store_pb2.StorePruneRequest())
        assert freed.bytes_freed >= 100
        assert list((wire.home.store / "quarantine").iterdir()) == []

    play(scenario, limits=PLENTY)


def test_a_session_takes_its_own_blocks_along_and_leaves_shared_ones() -> None:
    async def scenario(wire: Wire) -> None:
        assert wire.disk is not None
        first = await say(wire, "one", "a common beginning")
        second = await say(wire, "two", "a common beginning")
        assert first == second
        longer = await say(wire, "one", "and more of one")
        shared = keep(wire, second, head="x")
        own = keep(wire, longer, head="x") - shared
        others = keep(wire, list(range(16)))
        weighed = {
            session.name: session.bytes
            for session in (await wire.sessions.List(sessions_pb2.SessionListRequest())).sessions
        }
        sizes = [kept.stored_bytes for name in own if (kept := wire.disk.find(name)) is not None]
        assert weighed["one"] - weighed["two"] > sum(sizes) > 0
        removed = await wire.sessions.Remove(sessions_pb2.SessionRemoveRequest(name="one"))
        assert wire.forgotten_texts[-1] == (longer, len(shared_ids(second, longer)))
        assert removed.bytes_freed >= sum(sizes)
        assert [wire.disk.find(name) for name in own] == [None] * len(own)
        kept = others | (shared & set(chain_of(second, BLOCK, head="x").nodes))
        assert [name for name in kept if wire.disk.find(name) is None] == []
        await wire.sessions.Remove(sessions_pb2.SessionRemoveRequest(name="two"))
        assert wire.forgotten_texts[-1] == (second, 0)
        assert (await stats(wire)).blocks == len(others)

    play(scenario, limits=PLENTY)


def test_listing_sessions_again_reads_the_ids_of_none_but_those_that_went_on() -> None:
    async def scenario(wire: Wire) -> None:
        async def sizes() -> dict[str, int]:
            listed = await wire.sessions.List(sessions_pb2.SessionListRequest())
            return {session.name: session.bytes for session in listed.sessions}

        for name in ("one", "two", "three"):
            ids = await say(wire, name, f"the text of {name}")
            keep(wire, ids, head="x")
        read: list[list[str]] = []
        chains = wire.desk.sessions.chains

        def watched(names: Any = None) -> Any:
            read.append(sorted(names))
            return chains(names)

        wire.desk.sessions.chains = watched  # type: ignore[method-assign]
        before = await sizes()
        assert await sizes() == before
        assert read == [["one", "three", "two"]]
        keep(wire, await say(wire, "two", "and more of it"), head="x")
        after = await sizes()
        assert read[1:] == [["two"]]
        assert after.pop("two") > before.pop("two")
        assert after == before
        await wire.sessions.Show(sessions_pb2.SessionShowRequest(name="one"))
        assert len(read) == 2

    play(scenario, limits=PLENTY)


def test_a_session_is_forgotten_in_memory_where_no_store_is_kept() -> None:
    async def scenario(wire: Wire) -> None:
        ids = await say(wire, "one", "only in memory")
        await wire.sessions.Remove(sessions_pb2.SessionRemoveRequest(name="one"))
        assert wire.forgotten_texts == [(ids, 0)]

    play(scenario, store="off")


def test_memory_is_wiped_before_the_disk_and_after() -> None:
    """What waits in memory to be written is not written behind the wipe's back, and nothing comes back from there."""

    async def scenario(wire: Wire) -> None:
        keep(wire, list(range(20)))
        assert wire.disk is not None
        seen: list[bool] = []
        clear = wire.disk.clear

        def watched() -> int:
            seen.append(wire.forgotten.is_set())
            wire.forgotten.clear()
            return clear()

        wire.disk.clear = watched  # type: ignore[method-assign]
        await wire.store.Clear(store_pb2.StoreClearRequest())
        assert seen == [True]
        assert wire.forgotten.is_set()

    play(scenario, limits=PLENTY)


def test_without_a_store_its_verbs_say_how_to_have_one() -> None:
    async def scenario(wire: Wire) -> None:
        for call in (
            wire.store.Prune(store_pb2.StorePruneRequest()),
            wire.store.Verify(store_pb2.StoreVerifyRequest()).read(),
        ):
            error = await refusal(call)
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
            assert "mtplx config set store on" in (error.details() or "")
        assert (await stats(wire)).state == "off"
        assert (await wire.store.Clear(store_pb2.StoreClearRequest())).bytes_freed == 0

    play(scenario, store="off")


@pytest.mark.parametrize(
    ("asked", "model", "daemon", "in_force"),
    [
        ("", "", "on", "on"), ("", "", "write-only", "write-only"), ("", "off", "on", "off"),
        ("on", "off", "write-only", "on"), ("off", "", "on", "off"), ("write-only", "on", "on", "write-only"),
        ("off", "", "off", "off"), ("", "", "off", "off"),
    ],
)  # fmt: skip
def test_a_requests_word_beats_its_models_which_beats_the_daemons(
    asked: str, model: str, daemon: str, in_force: str
) -> None:
    async def scenario(wire: Wire) -> None:
        load = models_pb2.LoadRequest(name="a", store=model)
        loaded = [event async for event in wire.packs.Load(load)]
        assert loaded[-1].resident.store == model
        _ = [event async for event in wire.generation.Generate(wire.ask(store=asked))]
        assert wire.engine.jobs[-1].request.store == in_force

    play(scenario, store=daemon)


@pytest.mark.parametrize("mode", ["on", "write-only"])
def test_a_daemon_without_a_store_refuses_those_who_ask_for_one(mode: str) -> None:
    async def scenario(wire: Wire) -> None:
        for call in (
            wire.generation.Generate(wire.ask(store=mode)).read(),
            wire.packs.Load(models_pb2.LoadRequest(name="a", store=mode)).read(),
        ):
            error = await refusal(call)
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
            assert f"the daemon's store is off (--store {mode})" in (error.details() or "")
        assert wire.engine.jobs == []

    play(scenario, store="off")


def test_a_load_refuses_modes_that_are_none() -> None:
    async def scenario(wire: Wire) -> None:
        error = await refusal(wire.packs.Load(models_pb2.LoadRequest(name="a", store="maybe")).read())
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "give on, write-only, off" in (error.details() or "")

    play(scenario)
