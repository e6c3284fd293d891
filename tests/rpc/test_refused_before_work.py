"""What is refused before any work: deadlines that have passed, and more requests than the way to the engine takes."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from mtplx_proto.v1 import generation_pb2
from mtplxd.errors import DeadlineExceeded, ResourceExhausted
from mtplxd.rpc.calls import EarlyCall, EarlyCalls
from mtplxd.rpc.generation import Generation, origin_of_end
from mtplxd.rpc.lanes import Lanes
from support.fake_engine import ScriptedEngine
from support.rpc_rig import ByteTokenizer, Wire, eventually, wired


def play(scenario: Any, engine: ScriptedEngine | None = None, **rig: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired(engine, **rig) as wire:
            await scenario(wire)

    asyncio.run(main())


def retry_s(failure: grpc.aio.AioRpcError) -> float:
    for detail in rpc_status.from_call(failure).details:
        if detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            return error_details_pb2.RetryInfo.FromString(detail.value).retry_delay.ToMilliseconds() / 1e3
    return 0.0


class TooLate:
    """A call whose deadline passed on the way."""

    def time_remaining(self) -> float:
        return -0.5

    def invocation_metadata(self) -> tuple[()]:
        return ()


def test_a_deadline_that_has_passed_is_refused_untouched() -> None:
    async def main() -> None:
        nothing: Any = None
        service = Generation(nothing, nothing, EarlyCalls(), nothing, "a", desk=nothing)
        with pytest.raises(DeadlineExceeded, match="passed already"):
            await service.Generate(generation_pb2.GenerateRequest(prompt="hi"), TooLate())

    asyncio.run(main())


def test_the_same_request_sent_twice_is_two_requests() -> None:
    async def scenario(wire: Wire) -> None:
        async def once() -> str:
            metadata = (("mtplx-client", "me"), ("mtplx-request-id", "mine"))
            call = wire.generation.Generate(wire.ask(), metadata=metadata)
            return "".join([event.text.text async for event in call])

        assert await asyncio.gather(once(), once()) == ["hello", "hello"]
        assert len({job.request.id for job in wire.engine.jobs}) == 2

    play(scenario)


def test_one_client_on_its_way_is_bounded_and_others_are_not() -> None:
    early = EarlyCalls(limit=4, client_limit=2)

    def call(number: int, client: str) -> EarlyCall:
        return EarlyCall(f"r{number}", client, "a")

    with early.enter(call(1, "a")), early.enter(call(2, "a")):
        with pytest.raises(ResourceExhausted, match=r"of one client wait \(2 of 2\)") as refused:
            early.enter(call(3, "a")).__enter__()
        assert refused.value.retry_after_s > 0
        with early.enter(call(4, "b")), early.enter(call(5, "c")):
            with pytest.raises(ResourceExhausted, match=r"the queue is full \(4 of 4\)"):
                early.enter(call(6, "d")).__enter__()
            assert len(early.all()) == 4
    with early.enter(call(7, "a")):
        assert [one.id for one in early.all()] == ["r7"]


def test_a_client_with_too_many_on_their_way_is_told_when_to_come_back() -> None:
    async def scenario(wire: Wire) -> None:
        wire.models.loader.hold()
        mine, others = (("mtplx-client", "me"),), (("mtplx-client", "you"),)
        waiting = [wire.generation.Generate(wire.ask(), metadata=mine) for _ in range(2)]
        await eventually(lambda: len(wire.early.all()) == 2)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in wire.generation.Generate(wire.ask(), metadata=mine):
                pass
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert retry_s(refused.value) > 0
        waiting.append(wire.generation.Generate(wire.ask(), metadata=others))
        await eventually(lambda: len(wire.early.all()) == 3)
        wire.models.loader.gate.set()
        for call in waiting:
            assert [event async for event in call][-1].final.finish_reason == "stop"

    play(scenario, early=EarlyCalls(client_limit=2))


def test_a_flood_of_long_prompts_delays_another_client_by_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prompts are tokenised one at a time, and each client has at most one in that line."""
    begun: list[str] = []
    gate = threading.Semaphore(0)

    def encode(_: Any, text: str) -> list[int]:
        begun.append(text)
        gate.acquire()
        return [1]

    monkeypatch.setattr(ByteTokenizer, "encode", encode)

    async def scenario(wire: Wire) -> None:
        async def ask(client: str, prompt: str) -> None:
            request = wire.ask(prompt, raw=True)
            async for _ in wire.generation.Generate(request, metadata=(("mtplx-client", client),)):
                pass

        async def all_wait(count: int) -> None:
            await eventually(lambda: [call.state for call in wire.early.all()] == ["queue"] * count)

        wire.models.load("a")
        asking = [asyncio.ensure_future(ask("flood", f"f{number}")) for number in range(30)]
        await all_wait(30)
        asking.append(asyncio.ensure_future(ask("other", "o")))
        await all_wait(31)
        gate.release(31)
        await asyncio.gather(*asking)
        assert begun.index("o") == 1
        assert len(begun) == 31

    play(scenario)


def test_a_lane_ends_with_its_last_user_and_one_who_gives_up_leaves_it() -> None:
    async def main() -> None:
        lanes = Lanes()

        async def wait() -> None:
            async with lanes.enter("a"):
                pass

        async with lanes.enter("a"):
            waiting = asyncio.ensure_future(wait())
            async with lanes.enter("b"):
                assert len(lanes) == 2
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert len(lanes) == 1
        assert len(lanes) == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("left", "origin"),
    [
        (None, "client"),
        (30.0, "client"),
        (0.3, "client"),
        (0.02, "deadline"),
        (0.0, "deadline"),
        (-1.0, "deadline"),
    ],
)
def test_a_client_whose_clock_ran_out_first_ended_by_its_deadline(left: float | None, origin: str) -> None:
    assert origin_of_end(left) == origin
