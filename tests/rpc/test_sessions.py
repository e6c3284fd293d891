"""Generations that go on with a session: what the model reads, what is kept, and one answer at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import generation_pb2, sessions_pb2, store_pb2, system_pb2
from mtplxd.engine.events import Event, Text
from mtplxd.rpc.conversing import _granted, way_back
from support.fake_engine import Job, ScriptedEngine, finished, say_hello, until_cancelled
from support.rpc_rig import Wire, eventually, wired

HELLO = [5, 6, 7]


def play(scenario: Any, engine: ScriptedEngine | None = None) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired(engine) as wire:
            await scenario(wire)

    asyncio.run(main())


async def say(wire: Wire, prompt: str, **fields: Any) -> list[Any]:
    request = wire.ask(prompt, **{"session": "work", **fields})
    return [event async for event in wire.generation.Generate(request)]


async def last(wire: Wire, prompt: str, **fields: Any) -> Any:
    return (await say(wire, prompt, **fields))[-1].final


async def refused(wire: Wire, prompt: str = "hi", **fields: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await say(wire, prompt, **fields)
    return error.value


async def shown(wire: Wire, name: str = "work") -> Any:
    return await wire.sessions.Show(sessions_pb2.SessionShowRequest(name=name))


async def names(wire: Wire) -> set[str]:
    listed = await wire.sessions.List(sessions_pb2.SessionListRequest())
    return {session.name for session in listed.sessions}


async def begun(wire: Wire, count: int) -> None:
    """Until so many requests have reached the engine."""
    await eventually(lambda: len(wire.engine.jobs) == count)


def read_by(wire: Wire, place: int = -1) -> list[int]:
    """The ids that the engine was given."""
    return wire.engine.jobs[place].request.prompt


class Held:
    """An engine whose answer to `one` waits until it is let go."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine(self._script)
        self._go = threading.Event()

    def _script(self, job: Job) -> Iterator[Event]:
        if bytes(job.request.prompt).endswith(b"one"):
            assert self._go.wait(30)
        yield from say_hello(job)

    def let_go(self) -> None:
        self._go.set()


def test_the_next_turn_reads_the_whole_conversation_with_answers_as_they_were_made() -> None:
    async def scenario(wire: Wire) -> None:
        first = await last(wire, "hi", system="be")
        assert first.session == generation_pb2.Kept(name="work", turn=1, kept=True)
        await last(wire, "more")
        bar = ord("|")
        assert read_by(wire) == [*b"be", bar, *b"hi", bar, *HELLO, bar, *b"more"]
        found = await shown(wire)
        assert [(message.role, message.content) for message in found.messages] == [
            ("system", "be"), ("user", "hi"), ("assistant", "hello"), ("user", "more"), ("assistant", "hello")
        ]  # fmt: skip
        assert [list(message.tokens) for message in found.messages] == [[], [], HELLO, [], HELLO]
        assert [(turn.turn, turn.usage.completion_tokens) for turn in found.turns] == [(1, 3), (2, 3)]
        assert found.session.tokens == len(read_by(wire)) + 3

    play(scenario)


def test_the_tokens_that_ended_an_answer_are_the_templates_to_write() -> None:
    def ends(job: Job) -> Iterator[Event]:
        yield Text("hello", (5, 6, 2, 2))
        yield finished(job, made=4)

    async def scenario(wire: Wire) -> None:
        await last(wire, "hi")
        await last(wire, "more")
        assert read_by(wire) == [*b"hi|", 5, 6, *b"|more"]

    play(scenario, ScriptedEngine(ends))


def test_it_is_kept_before_the_end_is_told() -> None:
    async def scenario(wire: Wire) -> None:
        async for event in wire.generation.Generate(wire.ask("hi", session="work")):
            if event.HasField("final"):
                with sqlite3.connect(wire.home.sessions_file) as file:
                    assert file.execute("SELECT count(*) FROM turns").fetchone() == (1,)

    play(scenario)


def test_a_model_and_a_sampler_are_the_sessions_until_others_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mtplxd.rpc.generation.text_fingerprint", lambda pack: pack.name)

    async def scenario(wire: Wire) -> None:
        wire.models.catalog.add("b")
        await last(wire, "hi", sampler={"temperature": 0.25, "top_k": 7, "seed": 5})
        again = await last(wire, "more", model="")
        assert (again.model, again.sampler.temperature, again.sampler.top_k) == ("a", 0.25, 7)
        assert again.sampler.seed != 5
        asked = await last(wire, "more", sampler={"temperature": 0.5})
        assert (asked.sampler.temperature, asked.sampler.top_k) == (0.5, 7)
        other = await last(wire, "more", model="b")
        assert (other.model, other.sampler.temperature) == ("b", 1.0)
        assert other.session.notices == ["until now a answered in this session, from here on b"]
        assert (await last(wire, "more", model="")).model == "b"

    play(scenario)


def test_a_model_that_is_gone_says_whose_it_was_and_what_to_do() -> None:
    async def scenario(wire: Wire) -> None:
        await last(wire, "hi")
        wire.models.residency.unload("a").result(30)
        del wire.models.catalog.packs["a"]
        error = await refused(wire, "more", model="")
        assert error.code() == grpc.StatusCode.NOT_FOUND
        assert "the session's model is gone (work: a)" in (error.details() or "")
        assert "--model" in (error.details() or "")
        assert [*(await shown(wire)).session.notices] == [
            "its model is gone: `mtplx pull a`, or go on with --model NAME"
        ]
        wire.models.catalog.add("b")
        assert (await last(wire, "more", model="b")).session.turn == 2

    play(scenario)


def test_a_model_that_is_gone_comes_back_where_it_was() -> None:
    assert way_back("org/model") == "`mtplx pull org/model`"
    assert way_back("/home/me/model") == "put its folder back"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"session": "../up"}, "session"), ({"session": " "}, "session"), ({"session": "x" * 65}, "session"),
        ({"session": "-x"}, "session"), ({"raw": True}, "session"), ({"n": 2}, "n"),
        ({"session_busy": "shove"}, "session_busy"), ({"session": "", "session_busy": "fork"}, "session_busy"),
        ({"store": "sometimes"}, "store"),
    ],
)  # fmt: skip
def test_what_a_session_cannot_be_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    async def scenario(wire: Wire) -> None:
        error = await refused(wire, **fields)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert field.encode() in (dict(error.trailing_metadata() or ()).get("grpc-status-details-bin") or b"")
        assert wire.engine.jobs == []
        assert not wire.home.sessions_file.exists()

    play(scenario)


def test_a_session_has_one_system_text() -> None:
    async def scenario(wire: Wire) -> None:
        await last(wire, "hi", system="be")
        error = await refused(wire, "more", system="do")
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert (await last(wire, "more", system="be")).session.turn == 2
        assert [message.role for message in (await shown(wire)).messages].count("system") == 1

    play(scenario)


def test_a_turn_says_something_new() -> None:
    async def scenario(wire: Wire) -> None:
        await last(wire, "hi", system="be")
        only_system = generation_pb2.Chat(messages=[generation_pb2.Message(role="system", content="be")])
        request = generation_pb2.GenerateRequest(chat=only_system, model="a", session="work")
        with pytest.raises(grpc.aio.AioRpcError, match="nothing new is said"):
            _ = [event async for event in wire.generation.Generate(request)]
        assert (await last(wire, "more")).session.turn == 2

    play(scenario)


def test_a_session_longer_than_the_context_says_so() -> None:
    async def scenario(wire: Wire) -> None:
        await last(wire, "x" * 50)
        error = await refused(wire, "y" * 50)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "session work: prompt is longer than the context" in (error.details() or "")
        assert "begin another one" in (error.details() or "")

    play(scenario)


def test_a_pack_that_changed_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prints = iter(["one", "one", "two", "two"])
    monkeypatch.setattr("mtplxd.rpc.generation.text_fingerprint", lambda _pack: next(prints))

    async def scenario(wire: Wire) -> None:
        notices = []
        for said in ("a", "b", "c", "d"):
            held = Held()
            wire.engine.script = held._script
            answer = asyncio.ensure_future(say(wire, f"{said} one"))
            await begun(wire, len(notices) + 1)
            await wire.hashed()
            held.let_go()
            notices.append([*(await answer)[-1].final.session.notices])
        assert notices == [[], [], ["a is no longer what it was when it answered here before"], []]

    play(scenario)


def test_a_second_client_waits_and_goes_on_behind_the_first() -> None:
    held = Held()

    async def scenario(wire: Wire) -> None:
        one = asyncio.ensure_future(say(wire, "one"))
        await begun(wire, 1)
        two = asyncio.ensure_future(say(wire, "two"))
        await eventually(lambda: any("work" in call.waits_for for call in wire.early.all()))
        assert len(wire.engine.jobs) == 1
        held.let_go()
        await one
        events = await two
        assert events[0].progress.message == "waits for the session work, which answers somebody else"
        assert events[-1].final.session.turn == 2
        assert read_by(wire) == [*b"one|", *HELLO, *b"|two"]

    play(scenario, held.engine)


def test_who_waits_can_leave_and_the_session_is_free_afterwards() -> None:
    held = Held()

    async def scenario(wire: Wire) -> None:
        one = asyncio.ensure_future(say(wire, "one"))
        await begun(wire, 1)
        two = wire.generation.Generate(wire.ask("two", session="work"))
        assert (await two.read()).progress.message
        two.cancel()
        await eventually(lambda: not wire.early.all())
        held.let_go()
        await one
        assert (await last(wire, "three")).session.turn == 2
        assert not wire.desk.claims.busy("work")

    play(scenario, held.engine)


def test_who_leaves_in_the_moment_its_turn_comes_leaves_the_session_free() -> None:
    async def scenario(wire: Wire) -> None:
        claim = wire.desk.claims.take("work")
        assert claim is not None
        waiting = asyncio.ensure_future(_granted(wire.desk.claims.ask("work")))
        await asyncio.sleep(0)
        claim.release()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not wire.desk.claims.busy("work")

    play(scenario)


def test_a_busy_session_refuses_where_that_was_asked() -> None:
    held = Held()

    async def scenario(wire: Wire) -> None:
        one = asyncio.ensure_future(say(wire, "one"))
        await begun(wire, 1)
        error = await refused(wire, "two", session_busy="refuse")
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "answers somebody else (work)" in (error.details() or "")
        held.let_go()
        await one
        assert (await last(wire, "two", session_busy="refuse")).session.turn == 2

    play(scenario, held.engine)


def test_a_fork_goes_on_from_what_was_kept_and_leaves_the_session_alone() -> None:
    held = Held()

    async def scenario(wire: Wire) -> None:
        await last(wire, "hi")
        one = asyncio.ensure_future(say(wire, "one"))
        await begun(wire, 2)
        forks = [await last(wire, said, session_busy="fork") for said in ("two", "three")]
        assert [fork.session.name for fork in forks] == ["work-2", "work-3"]
        assert [fork.session.forked_from for fork in forks] == ["work", "work"]
        assert read_by(wire) == [*b"hi|", *HELLO, *b"|three"]
        held.let_go()
        assert (await one)[-1].final.session == generation_pb2.Kept(name="work", turn=2, kept=True)
        assert await names(wire) == {"work", "work-2", "work-3"}
        said = {
            name: [m.content for m in (await shown(wire, name)).messages][2] for name in await names(wire)
        }
        assert said == {"work": "one", "work-2": "two", "work-3": "three"}
        assert (await last(wire, "on", session="work-2")).session.turn == 3

    play(scenario, held.engine)


def test_an_answer_that_is_cut_off_is_kept_as_far_as_it_came() -> None:
    async def scenario(wire: Wire) -> None:
        stream = wire.generation.Generate(wire.ask("hi", session="work"))
        while not (await stream.read()).HasField("text"):
            pass
        stream.cancel()
        await eventually(lambda: wire.desk.sessions.counts.sessions == 1)
        await eventually(lambda: not wire.desk.claims.busy("work"))
        found = await shown(wire)
        assert [message.content for message in found.messages] == ["hi", "…"]
        assert found.turns[0].stop_origin == "client"

    play(scenario, ScriptedEngine(until_cancelled))


@pytest.mark.parametrize(
    ("reason", "origin", "text"), [("error", "non_finite", "x"), ("cancelled", "client", "")]
)
def test_an_answer_that_failed_or_never_began_leaves_no_half_turn(
    reason: str, origin: str, text: str
) -> None:
    def fails(job: Job) -> Iterator[Event]:
        yield Text(text, (5,))
        yield finished(job, reason, origin)

    async def scenario(wire: Wire) -> None:
        final = await last(wire, "hi")
        assert not final.session.kept
        assert origin in final.session.notices[0]
        assert await names(wire) == set()

    play(scenario, ScriptedEngine(fails))


def test_a_request_that_never_reaches_the_engine_frees_the_session() -> None:
    async def scenario(wire: Wire) -> None:
        assert (await refused(wire, "x" * 100)).code() == grpc.StatusCode.INVALID_ARGUMENT
        assert (await last(wire, "hi")).session.turn == 1

    play(scenario)


def test_a_full_disk_costs_the_turn_not_the_answer() -> None:
    async def scenario(wire: Wire) -> None:
        await last(wire, "hi")
        await wire.desk.run(fill, wire.desk.sessions._file)
        events = await say(wire, "more")
        final = events[-1].final
        assert "".join(event.text.text for event in events) == "hello"
        assert (final.finish_reason, final.session.kept, final.session.turn) == ("stop", False, 2)
        assert "this turn is not kept: the disk is full" in final.session.notices[0]
        status = await wire.system.Status(system_pb2.StatusRequest())
        assert status.store.state == "degraded"
        assert "the disk is full" in status.store.reason
        assert (await last(wire, "more")).session == generation_pb2.Kept(name="work", turn=2, kept=True)
        assert (await wire.system.Status(system_pb2.StatusRequest())).store.state == "on"

    play(scenario)


def fill(file: sqlite3.Connection | None) -> None:
    """Leaves this connection no room: as many rows as go into the pages that it has."""
    assert file is not None
    [pages] = file.execute("PRAGMA page_count").fetchone()
    file.execute(f"PRAGMA max_page_count = {pages}")
    file.execute("INSERT INTO sessions (id, name, created, updated) VALUES (99, 'filler', 0, 0)")
    for table in (
        "sessions (name, created, updated) SELECT hex(randomblob(9)), 0, 0",
        "messages SELECT 99, 1 + coalesce(max(place), 0), 1, '', '' FROM messages WHERE session = 99",
        "turns (session, turn, model, fingerprint, sampler, finish_reason, stop_origin, prompt_tokens, cached_tokens,"
        " shared, ids, at) SELECT 99, 1 + coalesce(max(turn), 0), '', '', '', '', '', 0, 0, 0, x'', 0"
        " FROM turns WHERE session = 99",
    ):
        with contextlib.suppress(sqlite3.OperationalError):
            while True:
                file.execute(f"INSERT INTO {table}")


def test_rename_and_remove_are_refused_while_it_answers() -> None:
    held = Held()

    async def scenario(wire: Wire) -> None:
        one = asyncio.ensure_future(say(wire, "one"))
        await begun(wire, 1)
        for call in (
            wire.sessions.Rename(sessions_pb2.SessionRenameRequest(name="work", to="play")),
            wire.sessions.Remove(sessions_pb2.SessionRemoveRequest(name="work")),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call
            assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        held.let_go()
        await one
        renamed = await wire.sessions.Rename(sessions_pb2.SessionRenameRequest(name="work", to="play"))
        assert (renamed.name, renamed.turns, renamed.busy) == ("play", 1, False)
        with pytest.raises(grpc.aio.AioRpcError, match="letters, digits"):
            await wire.sessions.Rename(sessions_pb2.SessionRenameRequest(name="play", to="/"))
        assert not wire.desk.claims.busy("play")
        assert await names(wire) == {"play"}
        removed = await wire.sessions.Remove(sessions_pb2.SessionRemoveRequest(name="play"))
        assert removed.bytes_freed > 0
        assert await names(wire) == set()

    play(scenario, held.engine)


@pytest.mark.parametrize("verb", ["Show", "Rename", "Remove"])
def test_an_unknown_session_is_not_found(verb: str) -> None:
    async def scenario(wire: Wire) -> None:
        fields = {"to": "x"} if verb == "Rename" else {}
        request = getattr(sessions_pb2, f"Session{verb}Request")(name="none", **fields)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await getattr(wire.sessions, verb)(request)
        assert error.value.code() == grpc.StatusCode.NOT_FOUND
        assert "none" in (error.value.details() or "")

    play(scenario)


def test_clearing_with_sessions_leaves_nothing_of_what_was_said() -> None:
    async def scenario(wire: Wire) -> None:
        await last(wire, "a very secret thing")
        assert any(b"very secret" in path.read_bytes() for path in wire.home.store.iterdir())
        freed = await wire.store.Clear(store_pb2.StoreClearRequest(sessions=True))
        assert freed.sessions == 1
        assert freed.bytes_freed > 0
        assert not any(b"very secret" in path.read_bytes() for path in wire.home.store.iterdir())
        assert (await last(wire, "hi")).session.turn == 1

    play(scenario)


def test_a_removed_session_is_not_in_the_file_any_more() -> None:
    async def scenario(wire: Wire) -> None:
        await last(wire, "a very secret thing")
        await last(wire, "hello", session="other")
        await wire.sessions.Remove(sessions_pb2.SessionRemoveRequest(name="work"))
        assert not any(b"very secret" in path.read_bytes() for path in wire.home.store.iterdir())
        assert await names(wire) == {"other"}

    play(scenario)


def test_status_counts_sessions_and_names_the_mode() -> None:
    async def scenario(wire: Wire) -> None:
        before = (await wire.system.Status(system_pb2.StatusRequest())).store
        assert (before.state, before.sessions, before.bytes) == ("on", 0, 0)
        await last(wire, "hi")
        after = (await wire.system.Status(system_pb2.StatusRequest())).store
        assert (after.state, after.sessions) == ("on", 1)
        assert after.bytes >= wire.home.sessions_file.stat().st_size > 0

    play(scenario)


def test_samplers_are_kept_as_they_were_in_force() -> None:
    async def scenario(wire: Wire) -> None:
        await last(wire, "hi", sampler={"temperature": 0.5, "seed": 3})
        kept = json.loads((await shown(wire)).turns[0].sampler_json)
        assert (kept["temperature"], kept["seed"], kept["acceptance"]) == (0.5, 3, "coupled")

    play(scenario)
