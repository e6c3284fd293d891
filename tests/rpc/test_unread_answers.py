"""Answers that ended and that nobody reads: one who stopped finds his later, and none of them are kept for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from mtplxd.engine.events import Event, Text
from mtplxd.rpc import unread
from mtplxd.rpc.unread import PATIENCE_S, whom_to_give_up
from support.fake_engine import Job, ScriptedEngine, finished
from support.rpc_rig import Wire, eventually, wired


@dataclass(frozen=True)
class Answer:
    name: str
    over_since: float | None


def names(*answers: Answer, now: float = 100.0, kept: int = 2) -> str:
    return "".join(one.name for one in whom_to_give_up(answers, now, kept))


def test_the_first_that_ended_are_given_up_beyond_those_kept() -> None:
    assert names(Answer("a", 3.0), Answer("b", 1.0), Answer("c", 2.0), Answer("d", 4.0)) == "bc"


def test_what_is_being_made_or_ended_just_now_is_never_given_up() -> None:
    fresh = [Answer("f", 100.0 - PATIENCE_S), Answer("g", 99.0), Answer("h", None)]
    assert names(*fresh, kept=0) == ""
    assert names(*fresh, Answer("a", 1.0), Answer("b", 2.0)) == ""


def test_answers_that_ended_at_the_same_time_are_told_apart() -> None:
    assert names(Answer("a", 1.0), Answer("b", 1.0), Answer("c", 1.0)) == "a"


def too_much(job: Job) -> Iterator[Event]:
    """More than the socket's buffers take."""
    for _ in range(50):
        yield Text("x" * 100_000, (5,))
    yield finished(job, made=50)


def test_unread_answers_beyond_those_kept_end_and_the_others_are_all_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unread, "PATIENCE_S", -1.0)
    monkeypatch.setattr(whom_to_give_up, "__defaults__", (1,))

    async def scenario(wire: Wire) -> None:
        calls: list[Any] = []
        for count in range(1, 4):
            calls.append(wire.generation.Generate(wire.ask()))
            await eventually(lambda count=count: len(wire.engine.jobs) == count)
            await eventually(wire.engine.jobs[-1].finished.is_set)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            _ = [event async for event in calls[0]]
        assert ended.value.code() is grpc.StatusCode.CANCELLED
        assert "left unread" in (ended.value.details() or "")
        for call in calls[1:]:
            events = [event async for event in call]
            assert sum(len(event.text.text) for event in events) == 5_000_000
            assert events[-1].final.finish_reason == "stop"
        await eventually(lambda: all(view.in_use == 0 for view in wire.models.residency.views()))

    async def main() -> None:
        async with asyncio.timeout(60), wired(ScriptedEngine(too_much)) as wire:
            await scenario(wire)

    asyncio.run(main())
