"""Sessions and the store from Python: typed answers, one behaviour for both clients, options that reach the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mtplx_client import AsyncClient, Client
from mtplx_client.errors import InvalidArgument, NotFound
from mtplx_client.events import Kept, Usage
from mtplx_client.store import Reason
from mtplx_proto.v1 import common_pb2, generation_pb2
from support.fake_daemon import FakeDaemon, final, text


def both(daemon: FakeDaemon, method: str, *args: Any, **options: Any) -> list[Any]:
    """What the blocking and the asynchronous client answer."""

    async def ask() -> Any:
        async with AsyncClient(daemon.socket) as client:
            return await getattr(client, method)(*args, **options)

    with Client(daemon.socket) as client:
        return [getattr(client, method)(*args, **options), asyncio.run(ask())]


def test_sessions_are_listed_and_shown(daemon: FakeDaemon) -> None:
    for [session] in both(daemon, "sessions"):
        assert (session.name, session.model, session.turns, session.tokens) == (
            "rivers",
            "smollm2-135m",
            1,
            21,
        )
    for shown in both(daemon, "session", "rivers"):
        assert [message.role for message in shown.messages] == ["system", "user", "assistant"]
        assert shown.messages[2].tokens == (11, 12, 13, 2)
        assert shown.turns[0].usage == Usage(17, 0, 4)


def test_sessions_are_renamed_and_removed(daemon: FakeDaemon, client: Client) -> None:
    assert client.rename_session("rivers", "streams").name == "streams"
    gone = client.remove_session("streams")
    assert (gone.session.name, gone.bytes_freed) == ("streams", 40_000)
    with pytest.raises(NotFound, match="no such session"):
        client.remove_session("streams")
    assert both(daemon, "sessions") == [(), ()]


def test_the_store_tells_its_numbers(daemon: FakeDaemon) -> None:
    for stats in both(daemon, "cache_stats"):
        assert (stats.blocks, stats.bytes, stats.hits, stats.state) == (40, 8_000_000, 12, "on")
        assert stats.miss_reasons == (Reason("evicted", 1), Reason("new", 2))
    for verified in both(daemon, "cache_verify"):
        assert (verified.blocks, verified.bad) == (40, 0)
    for freed in both(daemon, "cache_prune"):
        assert freed.bytes_freed == 1_000_000


def test_progress_of_a_verification_is_handed_on(daemon: FakeDaemon, client: Client) -> None:
    daemon.progress = [common_pb2.Progress(stage="verify", done=done, total=40) for done in (1, 40)]
    seen: list[int] = []
    client.cache_verify(on_progress=lambda step: seen.append(step.done))
    assert seen == [1, 40]


def test_clearing_spares_sessions_unless_told(daemon: FakeDaemon, client: Client) -> None:
    assert client.cache_clear().sessions == 0
    assert len(client.sessions()) == 1
    assert client.cache_clear(sessions=True).sessions == 1
    assert client.sessions() == ()
    assert [request.sessions for request in daemon.requests("Store.Clear")] == [False, True]


def test_a_reply_says_what_became_of_its_turn(daemon: FakeDaemon) -> None:
    told = generation_pb2.Kept(name="rivers-2", turn=3, kept=True, forked_from="rivers", notices=["a", "b"])
    daemon.answer = lambda request, context: iter([text("Yes.", 5), final(session=told)])  # noqa: ARG005
    for reply in both(daemon, "complete", "More?", session="rivers", session_busy="fork", store="off"):
        assert reply.session == Kept("rivers-2", 3, True, "rivers", ("a", "b"))
    for request in daemon.requests("Generate"):
        assert (request.session, request.session_busy, request.store) == ("rivers", "fork", "off")


def test_a_reply_without_a_session_has_none(client: Client) -> None:
    assert client.complete("Hi").session is None


def test_what_the_wire_cannot_carry_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="session cannot be used"):
        client.complete("Hi", session=7)  # type: ignore[arg-type]


def test_an_empty_name_is_no_wish_to_keep_nothing(client: Client) -> None:
    """It comes from a variable that is not set: what is said would be lost."""
    with pytest.raises(InvalidArgument, match="no name for a session"):
        client.complete("Hi", session="")
    assert client.complete("Hi", session=None).session is None


def test_a_load_names_its_store(daemon: FakeDaemon, client: Client) -> None:
    client.load("smollm2-135m", store="write-only")
    client.load("smollm2-135m")
    assert [request.store for request in daemon.requests("Load")] == ["write-only", ""]
