"""Clients at the same time: each gets its own answer, and the daemon can tell them apart."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mtplx_client import AsyncClient, Client
from support.fake_daemon import FakeDaemon, final, text


def _meet_then_echo(parties: int) -> Any:
    """Answers with the prompt, only once all `parties` are in work."""
    meeting = threading.Barrier(parties)

    def answer(request: Any, _context: object) -> Any:
        meeting.wait(10)
        for at, letter in enumerate(request.prompt):
            yield text(letter, at)
        yield final()

    return answer


def test_two_clients_are_answered_at_once(daemon: FakeDaemon) -> None:
    daemon.answer = _meet_then_echo(2)
    with Client(daemon.socket) as one, Client(daemon.socket) as two, ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(lambda pair: pair[0].complete(pair[1]), [(one, "Rhine"), (two, "Elbe")]))
    assert [reply.text for reply in replies] == ["Rhine", "Elbe"]
    assert len({said["mtplx-client"] for said in daemon.metadata}) == 2


def test_one_client_serves_several_threads(daemon: FakeDaemon) -> None:
    daemon.answer = _meet_then_echo(4)
    words = ["Rhine", "Elbe", "Oder", "Main"]
    with Client(daemon.socket) as client, ThreadPoolExecutor(4) as pool:
        assert [reply.text for reply in pool.map(client.complete, words)] == words


def test_one_async_client_runs_several_requests(daemon: FakeDaemon) -> None:
    daemon.answer = _meet_then_echo(4)
    words = ["Rhine", "Elbe", "Oder", "Main"]

    async def run() -> list[str]:
        async with AsyncClient(daemon.socket) as client:
            replies = await asyncio.gather(*(client.complete(word) for word in words))
            return [reply.text for reply in replies]

    assert asyncio.run(run()) == words
