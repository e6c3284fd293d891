"""Status with many requests: who is where, who waits for whom, what the engine has in hand."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from mtplx_proto.v1 import system_pb2
from mtplxd.engine.ticket import InFlight
from mtplxd.rpc import generation
from support.fake_engine import ScriptedEngine
from support.rpc_rig import ByteTokenizer, Wire, eventually, wired


def play(scenario: Any, engine: ScriptedEngine | None = None) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wired(engine) as wire:
            await scenario(wire)

    asyncio.run(main())


async def status(wire: Wire) -> system_pb2.StatusReply:
    return await wire.system.Status(system_pb2.StatusRequest())


def test_every_number_of_a_request_is_shown() -> None:
    async def scenario(wire: Wire) -> None:
        wire.engine.in_flight = [
            InFlight(
                "r1", "me", "a", "decode", "", 12, 30, 1.5, "background",
                rounds=16, depth=2, tok_s=24.5, cached_tokens=4, prefilled=12,
            ),
            InFlight("r2", "you", "a", "queue", "a free row", 7, 0, 0.5),
        ]  # fmt: skip
        first, second = (await status(wire)).in_flight
        assert (first.id, first.client, first.state, first.priority) == ("r1", "me", "decode", "background")
        assert (first.rounds, first.depth, first.tok_s) == (16, 2, 24.5)
        assert (first.prompt_tokens, first.prefilled, first.cached_tokens) == (12, 12, 4)
        assert first.completion_tokens == 30
        assert (second.state, second.waits_for, second.priority) == ("queue", "a free row", "interactive")

    play(scenario)


def test_a_request_on_its_way_shows_its_priority_and_what_holds_the_engine() -> None:
    async def scenario(wire: Wire) -> None:
        wire.models.loader.hold()
        wire.engine.busy_with = "measuring"
        call = wire.generation.Generate(wire.ask(priority="background"))
        await eventually(lambda: wire.early.all())
        found = await status(wire)
        (early,) = found.in_flight
        assert (early.state, early.priority, early.waits_for) == ("load", "background", "measuring")
        assert found.queue.waiting == 1
        assert found.engine.busy_with == "measuring"
        wire.models.loader.gate.set()
        async for _ in call:
            pass

    play(scenario)


def test_a_prompt_that_is_being_tokenised_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def encode(_: Any, text: str) -> list[int]:
        assert gate.wait(60)
        return [*text.encode()]

    monkeypatch.setattr(ByteTokenizer, "encode", encode)

    async def scenario(wire: Wire) -> None:
        async def ask(client: str) -> None:
            async for _ in wire.generation.Generate(wire.ask(raw=True), metadata=(("mtplx-client", client),)):
                pass

        wire.models.load("a")
        wire.engine.busy_with = "measuring"  # nothing that a prompt needs for its tokens
        asking = [asyncio.ensure_future(ask("mine")) for _ in range(2)]
        await eventually(lambda: [call.state for call in wire.early.all()] == ["queue"] * 2)
        asking.append(asyncio.ensure_future(ask("yours")))
        await eventually(lambda: [call.state for call in wire.early.all()] == ["queue"] * 3)
        assert [(one.client, one.waits_for) for one in (await status(wire)).in_flight] == [
            ("mine", "its prompt's tokens"),
            ("mine", "its client's other prompts"),
            ("yours", "its prompt's tokens"),
        ]
        gate.set()
        await asyncio.gather(*asking)

    play(scenario)


def test_a_slow_grammar_is_named_and_holds_up_no_free_text(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = threading.Event(), threading.Event()

    def compile_slowly(*_: Any) -> None:
        begun.set()
        assert gate.wait(60)

    monkeypatch.setattr(generation, "compile_structure", compile_slowly)

    async def scenario(wire: Wire) -> None:
        async def ask(**fields: Any) -> str:
            *_, last = [event async for event in wire.generation.Generate(wire.ask(**fields))]
            return str(last.final.finish_reason)

        wire.models.load("a")
        slow = asyncio.ensure_future(ask(regex="a*"))
        await eventually(begun.is_set)
        [waiting] = (await status(wire)).in_flight
        assert (waiting.state, waiting.waits_for) == ("queue", "its grammar")
        assert await ask() == "stop"
        assert not slow.done()
        gate.set()
        assert await slow == "stop"

    play(scenario)


def test_what_the_engine_has_in_hand_is_shown_and_watched() -> None:
    async def scenario(wire: Wire) -> None:
        wire.engine.heartbeat_age_s, wire.engine.contexts = 3.5, 7 << 20
        found = (await status(wire)).engine
        assert (found.alive, found.stalled, found.rows, found.heartbeat_age_s) == (True, False, 0, 3.5)
        assert found.contexts == 7 << 20
        async for seen in wire.system.Watch(system_pb2.WatchRequest(interval_s=3600)):
            assert seen.engine.heartbeat_age_s == 3.5
            assert seen.engine.contexts == 7 << 20
            break
        wire.engine.alive = False
        assert not (await status(wire)).engine.alive

    play(scenario)


def test_a_model_says_why_it_serves_in_turn() -> None:
    async def scenario(wire: Wire) -> None:
        lease = wire.models.residency.acquire("a").result(30)
        assert (await status(wire)).models[0].apart == ""
        lease.model.apart = "its caches cannot be cut"
        assert (await status(wire)).models[0].apart == "its caches cannot be cut"
        lease.release()

    play(scenario)
