"""Load, Unload and their wishes over the wire."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import common_pb2, models_pb2
from mtplxd.packs.detector import detect_head
from mtplxd.packs.pack import read_pack
from mtplxd.residency.collaborators import Verdict
from mtplxd.residency.plan import GIB
from mtplxd.rpc.messages import pack_message
from support.rpc_rig import Wire, wired
from support.tiny_pack import make_tiny_pack


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


@pytest.mark.parametrize("trained", [True, False])
def test_a_pack_says_of_its_head_whether_it_was_trained_here(trained: bool, tmp_path: Path) -> None:
    pack = read_pack(make_tiny_pack(tmp_path / "tiny"))
    head = replace(detect_head(pack), metadata={"origin": "trained" if trained else "shipped"})
    assert pack_message(pack, head, Verdict("unverified", (), True)).head_trained is trained


def test_a_load_shows_its_progress_and_ends_with_the_model() -> None:
    async def scenario(wire: Wire) -> None:
        events = await load(wire, keep_alive_s=600, depth=common_pb2.Depth(fixed=2))
        assert [event.WhichOneof("event") for event in events][-1] == "resident"
        assert all(event.progress.stage == "load" for event in events[:-1])
        resident = events[-1].resident
        assert (resident.name, resident.state, resident.tier) == ("a", "ready", "verified")
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


def test_a_depth_the_head_cannot_draft_is_refused_before_the_model_is_loaded() -> None:
    async def scenario(wire: Wire) -> None:
        error = await refusal(wire, depth=common_pb2.Depth(fixed=99))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "99" in (error.details() or "")
        assert "up to 8" in (error.details() or "")
        assert wire.models.loader.events == []
        assert wire.models.residency.views() == []
        wanted = await load(wire, depth=common_pb2.Depth(fixed=12), depth_max=12)
        assert (wanted[-1].resident.depth, wanted[-1].resident.depth_max) == (12, 12)

    play(scenario)


@pytest.mark.parametrize("resident", [False, True])
def test_plain_and_a_depth_contradict_each_other_whatever_is_loaded(resident: bool) -> None:
    async def scenario(wire: Wire) -> None:
        if resident:
            await load(wire)
        error = await refusal(wire, plain=True, depth=common_pb2.Depth(fixed=2))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "plain decoding has depth 0" in (error.details() or "")

    play(scenario)


def test_an_unload_of_nothing_never_means_the_only_model() -> None:
    async def scenario(wire: Wire) -> None:
        await load(wire)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.packs.Unload(models_pb2.UnloadRequest(name=" "))
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert wire.models.states() == {"a": "ready"}

    play(scenario)


@pytest.mark.parametrize("method", ["Unload", "Remove"])
def test_a_model_in_use_is_busy_at_once(method: str) -> None:
    async def scenario(wire: Wire) -> None:
        lease = wire.models.residency.acquire("a").result(30)
        request = getattr(models_pb2, f"{method}Request")(name="a")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await getattr(wire.packs, method)(request)
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "model is busy (a, 1 in flight)" in (refused.value.details() or "")
        lease.release()

    play(scenario)


def test_a_folder_outside_the_home_is_not_removed(tmp_path: Path) -> None:
    async def scenario(wire: Wire) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.packs.Remove(models_pb2.RemoveRequest(name=str(tmp_path)))
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "only packs in the home are removed" in (refused.value.details() or "")

    play(scenario)
    assert tmp_path.is_dir()


def test_a_load_of_many_tensors_tells_some_twenty_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(wire: Wire) -> None:
        asked = wire.models.residency.acquire

        def many(name: str, *, progress: Any, **wish: Any) -> Any:
            future = asked(name, **wish)
            for done in range(1, 11):  # what a queue of 16 keeps, each a share of its own or of none
                progress(done, 1000)
            progress(1000, 1000)
            return future

        monkeypatch.setattr(wire.models.residency, "acquire", many)
        steps = [(e.progress.done, e.progress.total) for e in (await load(wire))[:-1]]
        assert steps == [(1, 1000), (1000, 1000)]

    play(scenario)
