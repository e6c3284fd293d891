"""Several answers to one prompt, priorities, and a refusal with a time: what both clients ask and hand on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from mtplx_client import AsyncClient, Client, Final, Progress, Text
from mtplx_client.errors import Internal, InvalidArgument, ResourceExhausted
from support.fake_daemon import Failure, FakeDaemon, final, logprobs, progress, text


def of(choice: int, event: Any) -> Any:
    event.choice = choice
    return event


def woven(*_: object) -> Iterator[Any]:
    yield of(1, progress("prefill", 12, 12))
    yield of(1, logprobs((21, -0.5, b"E")))
    yield of(1, text("Elbe", 21))
    yield of(0, text("Rhine", 11))
    yield of(1, final("length", "max_tokens"))
    yield of(0, final())


def test_every_event_says_which_answer_it_is_of(client: Client, daemon: FakeDaemon) -> None:
    daemon.answer = woven
    events = list(client.generate("hi", n=2))
    assert [(type(event).__name__, event.choice) for event in events] == [
        ("Progress", 1), ("Logprobs", 1), ("Text", 1), ("Text", 0), ("Final", 1), ("Final", 0),
    ]  # fmt: skip
    assert events[0] == Progress("prefill", 12, 12, "tokens", choice=1)


def test_a_reply_is_the_first_answer_and_has_them_all(client: Client, daemon: FakeDaemon) -> None:
    daemon.answer = woven
    reply = client.complete("hi", n=2, seed=7, priority="background")
    assert (reply.text, reply.finish_reason) == ("Rhine", "stop")
    assert [(one.text, one.finish_reason) for one in reply.choices] == [("Rhine", "stop"), ("Elbe", "length")]
    assert [one.choices for one in reply.choices] == [(), ()]
    assert reply.choices[1].logprobs is not None
    (asked,) = daemon.requests("Generate")
    assert (asked.n, asked.sampler.seed, asked.priority) == (2, 7, "background")


def test_both_clients_reply_alike(client: Client, daemon: FakeDaemon) -> None:
    daemon.answer = woven

    async def ask() -> Any:
        async with AsyncClient(daemon.socket) as other:
            return await other.complete("hi", n=2)

    assert asyncio.run(ask()) == client.complete("hi", n=2)


def test_one_answer_has_no_list(client: Client, daemon: FakeDaemon) -> None:
    assert client.complete("hi").choices == ()
    assert client.complete("hi", n=1).choices == ()
    assert [request.HasField("n") for request in daemon.requests("Generate")] == [False, True]


def test_an_answer_without_an_end_is_an_error(client: Client, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([of(1, final())])
    with pytest.raises(Internal, match="without its result"):
        client.complete("hi", n=2)


def test_a_choice_nobody_asked_for_is_an_error(client: Client, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([of(2, text("a", 1)), of(0, final()), of(1, final())])
    with pytest.raises(Internal, match="not asked for"):
        client.complete("hi", n=2)


@pytest.mark.parametrize("bad", [{"n": -1}, {"n": 2.5}, {"priority": 3}])
def test_what_the_wire_cannot_carry_names_its_field(client: Client, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        client.generate("hi", **bad)
    assert refused.value.field in bad


def test_a_full_queue_says_when_and_is_not_tried_again(client: Client, daemon: FakeDaemon) -> None:
    daemon.failures["Generate"] = Failure("RESOURCE_EXHAUSTED", "the queue is full", retry_s=2.5)
    client.status()  # a daemon that was met: a lost connection would be repeated
    with pytest.raises(ResourceExhausted) as refused:
        client.complete("hi")
    assert refused.value.retry_after_s == 2.5
    assert len(daemon.requests("Generate")) == 1


def test_fifty_streams_of_one_client_each_get_their_own_text(daemon: FakeDaemon) -> None:
    def echo(request: Any, _context: object) -> Iterator[Any]:
        for at, letter in enumerate(request.prompt):
            yield text(letter, at)
        yield final()

    daemon.answer = echo
    words = [f"stream number {number}" for number in range(50)]

    async def ask() -> list[str]:
        async with AsyncClient(daemon.socket) as client:
            return [reply.text for reply in await asyncio.gather(*map(client.complete, words))]

    assert asyncio.run(ask()) == words


def test_a_dropped_stream_leaves_its_client_usable(daemon: FakeDaemon) -> None:
    async def ask() -> None:
        async with AsyncClient(daemon.socket) as client:
            for _ in range(20):
                stream = client.generate("hi")
                assert isinstance(await anext(stream), Progress)
                await stream.aclose()
            events = [event async for event in client.generate("hi")]
            assert isinstance(events[1], Text)
            assert isinstance(events[-1], Final)

    asyncio.run(ask())
