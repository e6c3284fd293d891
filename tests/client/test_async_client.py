"""The asynchronous client does what the blocking one does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from mtplx_client import AsyncClient, Client, NoDaemon, Text, VersionMismatch
from mtplx_client.errors import DeadlineExceeded, FailedPrecondition, ResourceExhausted
from mtplx_proto.v1 import common_pb2
from support.fake_daemon import Failure, FakeDaemon, fake_daemon, final, text

T = TypeVar("T")


def run(daemon: FakeDaemon, scenario: Callable[[AsyncClient], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        async with AsyncClient(daemon.socket, **options) as client:
            return await scenario(client)

    return asyncio.run(main())


def test_both_clients_have_the_same_calls_with_the_same_arguments() -> None:
    def signatures(kind: type) -> dict[str, list[tuple[str, Any]]]:
        return {
            name: [(p.name, p.default) for p in inspect.signature(member).parameters.values()]
            for name, member in vars(kind).items()
            if callable(member) and not name.startswith("_")
        }

    assert signatures(AsyncClient) == signatures(Client)


def test_events_equal_those_of_the_blocking_client(daemon: FakeDaemon, client: Client) -> None:
    async def scenario(other: AsyncClient) -> list[Any]:
        return [event async for event in other.generate("hi", temperature=0.5, stop="x")]

    assert run(daemon, scenario) == list(client.generate("hi", temperature=0.5, stop="x"))
    first, second = daemon.requests("Generate")
    assert first == second


def test_calls_answer_like_those_of_the_blocking_client(daemon: FakeDaemon, client: Client) -> None:
    daemon.progress = [common_pb2.Progress(stage="fetch", done=1, total=2)]

    async def scenario(other: AsyncClient) -> list[Any]:
        return [
            await other.hello(),
            await other.status(),
            await other.ls(),
            await other.show("a"),
            await other.rm("a"),
            await other.pull("a"),
            await other.load("a", depth=1),
            await other.unload("a"),
            await other.ps(),
            await other.stop(),
            await other.cancel("r1"),
            await other.measure("a", depths=[0, 1], temperature=0.5),
            await other.suite("chat", prompts=1),
            await other.wait_ready(),
        ]

    assert run(daemon, scenario) == [
        client.hello(),
        client.status(),
        client.ls(),
        client.show("a"),
        client.rm("a"),
        client.pull("a"),
        client.load("a", depth=1),
        client.unload("a"),
        client.ps(),
        client.stop(),
        client.cancel("r1"),
        client.measure("a", depths=[0, 1], temperature=0.5),
        client.suite("chat", prompts=1),
        client.wait_ready(),
    ]
    asked = daemon.asked
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]


def test_closing_the_stream_cancels_the_request(daemon: FakeDaemon) -> None:
    def endless(_request: object, _context: object) -> Any:
        yield text("a", 1)
        daemon.cancelled.wait(10)
        yield final()

    daemon.answer = endless

    async def scenario(client: AsyncClient) -> None:
        events = client.generate("hi")
        assert isinstance(await anext(events), Text)
        await events.aclose()
        assert await asyncio.to_thread(daemon.cancelled.wait, 10)

    run(daemon, scenario)


def test_a_cancelled_task_cancels_the_request(daemon: FakeDaemon) -> None:
    def endless(_request: object, _context: object) -> Any:
        yield text("a", 1)
        daemon.cancelled.wait(10)

    daemon.answer = endless

    async def scenario(client: AsyncClient) -> None:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in client.generate("hi"):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(daemon.cancelled.wait, 10)

    run(daemon, scenario)


def test_errors_are_the_same_classes(daemon: FakeDaemon) -> None:
    daemon.failures["Load"] = Failure("RESOURCE_EXHAUSTED", "no memory", needed=5, available=3, retry_s=1.0)

    async def scenario(client: AsyncClient) -> ResourceExhausted:
        with pytest.raises(ResourceExhausted) as caught:
            await client.load("a")
        return caught.value

    error = run(daemon, scenario)
    assert (error.needed, error.available, error.retry_after_s) == (5, 3, 1.0)


def test_a_restarted_daemon_is_found_again(daemon: FakeDaemon) -> None:
    async def scenario(client: AsyncClient) -> int:
        await client.status()
        await asyncio.to_thread(daemon.stop)
        daemon.status.pid = 99
        await asyncio.to_thread(daemon.start)
        return (await client.status()).pid

    assert run(daemon, scenario) == 99


def test_watch_goes_on_with_a_restarted_daemon(daemon: FakeDaemon) -> None:
    async def scenario(client: AsyncClient) -> int:
        updates = client.watch()
        await anext(updates)
        await asyncio.to_thread(daemon.watching.wait, 10)
        await asyncio.to_thread(daemon.stop)
        daemon.status.pid = 99
        await asyncio.to_thread(daemon.start)
        found = (await anext(updates)).pid
        await updates.aclose()
        return found

    assert run(daemon, scenario) == 99


def test_a_missing_daemon_and_an_open_folder_and_a_deadline(daemon: FakeDaemon) -> None:
    async def no_daemon(client: AsyncClient) -> None:
        with pytest.raises(NoDaemon):
            await client.status()

    with fake_daemon(started=False) as absent:
        run(absent, no_daemon)

    async def others(client: AsyncClient) -> None:
        daemon.answer = lambda *_: iter([text("a", 1), *(daemon.cancelled.wait(10) and [])])
        with pytest.raises(DeadlineExceeded):
            await client.complete("hi", timeout=0.2)
        daemon.protocol = "2"
        with pytest.raises(VersionMismatch):
            await client.status()
        daemon.socket.parent.chmod(0o755)
        with pytest.raises(FailedPrecondition):
            await client.status()

    run(daemon, others)


def test_a_daemon_that_does_not_come_back(daemon: FakeDaemon) -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.status()
        await asyncio.to_thread(daemon.stop)
        with pytest.raises(NoDaemon):
            await client.status()

    run(daemon, scenario, reconnect_s=0.1)
