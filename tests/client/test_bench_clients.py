"""Clients at the same time over a socket: who asks what, in which order, warmed, and what a cancel leaves behind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from mtplx_client.bench_clients import WARM_TOKENS, ClientsMeasurement, ClientsPlan, measure_clients
from mtplx_client.errors import Internal
from mtplx_client.events import Progress
from mtplx_proto.v1 import common_pb2
from support.fake_daemon import FakeDaemon, final, text, when_ended


def measure(daemon: FakeDaemon, *widths: int, **more: Any) -> ClientsMeasurement:
    sampler = more.pop("sampler", {"temperature": 0.5})
    told = more.pop("told", [])
    plan = ClientsPlan("smollm2-135m", widths, **{"max_tokens": 32, "repeats": 2, **more})
    return asyncio.run(measure_clients(daemon.socket, plan, sampler, told.append))


@pytest.fixture(autouse=True)
def _answers_to_the_limit(daemon: FakeDaemon) -> None:
    def answer(request: Any, _context: object) -> Any:
        for token in range(4):
            yield text("a", token)
        used = common_pb2.Sampler(acceptance=request.sampler.acceptance or "block")
        yield final("length", "max_tokens", stats=common_pb2.Stats(rounds=3), sampler=used)

    daemon.answer = answer


def asked(daemon: FakeDaemon, max_tokens: int) -> list[tuple[bool, str, int]]:
    return [
        (request.plain, request.prompt, request.sampler.seed)
        for request in daemon.requests("Generate")
        if request.max_tokens == max_tokens
    ]


def test_waves_that_are_compared_run_beside_each_other_and_change_places(daemon: FakeDaemon) -> None:
    found = measure(daemon, 1, 3)
    assert [(wave.kind, wave.width, wave.repeat, len(wave.answers)) for wave in found.waves] == [
        ("plain_one", 1, 0, 1), ("drafted", 1, 0, 1), ("plain", 1, 0, 1),
        ("plain_one", 3, 0, 1), ("drafted", 3, 0, 3), ("plain", 3, 0, 3),
        ("drafted", 1, 1, 1), ("plain", 1, 1, 1), ("plain_one", 1, 1, 1),
        ("drafted", 3, 1, 3), ("plain", 3, 1, 3), ("plain_one", 3, 1, 1),
    ]  # fmt: skip
    assert [row.clients for row in found.rows] == [1, 3]
    assert found.model == "smollm2-135m"


def test_compared_waves_ask_the_same_prompts_with_the_same_seeds(daemon: FakeDaemon) -> None:
    measure(daemon, 2, repeats=1)
    single, *rest = asked(daemon, 32)
    drafted, plain = sorted(rest[:2]), sorted(rest[2:])
    assert single == (True, "Name three rivers.", 100)
    assert [one[1:] for one in drafted] == [one[1:] for one in plain]
    assert ([one[0] for one in drafted], [one[0] for one in plain]) == ([False] * 2, [True] * 2)
    assert {one[2] for one in drafted} == {100, 102}


def test_each_shape_is_warmed_once_and_nothing_ends_early(daemon: FakeDaemon) -> None:
    measure(daemon, 2)
    warm = [request for request in daemon.requests("Generate") if request.max_tokens == WARM_TOKENS]
    assert len(warm) == 1 + (1 + 2 + 2)
    assert all(request.ignore_eos and request.force for request in daemon.requests("Generate"))


def test_seeds_do_not_choose_the_rule(daemon: FakeDaemon) -> None:
    measure(daemon, 1, repeats=1)
    first, *others = daemon.requests("Generate")
    assert not first.sampler.HasField("seed")
    assert {request.sampler.acceptance for request in others} == {"block"}


def test_the_depth_is_asked_of_those_that_draft(daemon: FakeDaemon) -> None:
    measure(daemon, 1, repeats=1, depth=2, plain=False)
    depths = {(r.plain, r.depth.fixed) for r in daemon.requests("Generate")}
    assert depths == {(True, 0), (False, 2)}
    measure(daemon, 1, repeats=1, depth="auto")
    assert any(request.depth.auto for request in daemon.requests("Generate"))


def test_everybody_of_a_wave_is_in_work_at_once_on_a_connection_of_their_own(daemon: FakeDaemon) -> None:
    meeting = threading.Barrier(3)

    def answer(request: Any, _context: object) -> Any:
        if request.max_tokens == 32 and not request.plain:
            meeting.wait(10)
        yield text("a", 1)
        yield text("b", 2)
        yield final("length", "max_tokens")

    daemon.answer = answer
    measure(daemon, 3, repeats=1, plain=False)
    names = [
        metadata["mtplx-client"]
        for (method, request), metadata in zip(daemon.asked, daemon.metadata, strict=True)
        if method == "Generate" and request.max_tokens == 32 and not request.plain
    ]
    assert len(set(names)) == 3


def test_progress_is_told_to_its_end(daemon: FakeDaemon) -> None:
    told: list[Progress] = []
    measure(daemon, 1, repeats=1, told=told)
    assert [(step.done, step.total) for step in told] == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_run_that_ends_early_ends_the_others_and_the_measurement(daemon: FakeDaemon) -> None:
    begun, gone = threading.Event(), threading.Event()

    def answer(request: Any, context: Any) -> Any:
        yield text("a", 1)
        if request.plain or request.max_tokens == WARM_TOKENS:
            yield final("length", "max_tokens")
        elif request.prompt == "Name three rivers.":
            begun.wait(10)
            yield final("cancelled", "operator")
        else:
            when_ended(context, gone.set)
            begun.set()
            gone.wait(10)

    daemon.answer = answer
    with pytest.raises(Internal, match="operator"):
        measure(daemon, 2, repeats=1)
    assert gone.wait(10)


def test_cancelling_the_measurement_cancels_every_answer(daemon: FakeDaemon) -> None:
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    def answer(request: Any, context: Any) -> Any:
        yield text("a", 1)
        if not request.plain and request.max_tokens == 32:
            gone = threading.Event()
            when_ended(context, gone.set)
            begun.release()
            gone.wait(10)
            ended.release()
        yield final("length", "max_tokens")

    daemon.answer = answer

    async def main() -> None:
        plan = ClientsPlan("m", [4], max_tokens=32, repeats=1)
        running = asyncio.ensure_future(measure_clients(daemon.socket, plan, {}, lambda _: None))
        for _ in range(4):
            assert await asyncio.to_thread(begun.acquire, timeout=10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        for _ in range(4):
            assert await asyncio.to_thread(ended.acquire, timeout=10)

    asyncio.run(main())
