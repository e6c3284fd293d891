"""Requests served together: each gets the text it gets alone, whoever else comes, goes, fails or is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from mtplxd.engine import player as playing
from mtplxd.engine.batch import Batch
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Text
from mtplxd.engine.footprint import measure_footprint
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import Flight
from mtplxd.engine.stream import Stream
from mtplxd.families.load import LoadedModel
from support.engines import Held, load_on
from support.listening import PATIENCE_S, Listener, ask, decode

LONG: dict[str, Any] = {"max_tokens": 1500, "ignore_eos": True}
WARM = SamplerSettings(0.8, top_p=0.9, acceptance="coupled")


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(queue_limit=64, max_rows=8)
    engine.start()
    yield engine
    assert engine.stop(PATIENCE_S)


@pytest.fixture
def model(engine: Engine, tiny_model: LoadedModel) -> LoadedModel:
    """The tiny model, loaded by the thread that uses it."""
    return load_on(engine, tiny_model.pack)


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each round that is launched."""
    seen: list[int] = []
    real = playing.launch

    def launch(batch: Batch, *others: Any) -> Flight:
        seen.append(len(batch.rows))
        return real(batch, *others)

    monkeypatch.setattr(playing, "launch", launch)
    return seen


def once(do: Callable[[], object]) -> Callable[[Event], None]:
    """Does something at the first text."""
    done = threading.Event()

    def react(event: Event) -> None:
        if isinstance(event, Text) and not done.is_set():
            done.set()
            do()

    return react


def alone(model: LoadedModel, prompt: list[int], **others: Any) -> list[int]:
    return decode(ask(model, prompt, **others))[1].tokens


def test_requests_that_come_together_share_rounds_and_get_their_own_texts(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel, widths: list[int]
) -> None:
    asked = [
        (
            [5 + i] * (1 + 3 * i),
            {"depth": i % 4, "max_tokens": 20 + i, "ignore_eos": True, "sampler": sampler},
        )
        for i, sampler in enumerate([SamplerSettings(0.0), replace(WARM, seed=3), SamplerSettings(0.0), WARM])
    ]
    expected = [alone(tiny_model, prompt, **others) for prompt, others in asked]
    widths.clear()
    busy, listeners = Held(engine), [Listener() for _ in asked]
    for (prompt, others), listener in zip(asked, listeners, strict=True):
        engine.submit(ask(model, prompt, **others), listener)
    busy.release()
    assert [listener.wait().completion_tokens for listener in listeners] == [20, 21, 22, 23]
    assert [listener.tokens for listener in listeners] == expected
    assert max(widths) == 4


def test_a_row_joins_while_another_plays_and_leaves_before_it(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel, widths: list[int]
) -> None:
    expected = [alone(tiny_model, [5, 6, 7], max_tokens=60, ignore_eos=True), alone(tiny_model, [9, 8])]
    widths.clear()
    short = Listener()
    long = Listener(once(lambda: engine.submit(ask(model, [9, 8], depth=1), short)))
    engine.submit(ask(model, [5, 6, 7], depth=2, max_tokens=60, ignore_eos=True), long)
    long.wait()
    short.wait()
    assert [long.tokens, short.tokens] == expected
    assert widths[0] == widths[-1] == 1
    assert max(widths) == 2


@pytest.mark.parametrize("depth", [0, 2])
def test_a_cancelled_row_leaves_within_a_round_and_the_others_go_on(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel, depth: int
) -> None:
    expected = alone(tiny_model, [9, 8], max_tokens=80, ignore_eos=True)
    busy, stays = Held(engine), Listener()
    goes = Listener(lambda event: engine.cancel("goes") if isinstance(event, Text) else None)
    engine.submit(ask(model, [5, 6, 7], id="goes", depth=depth, **LONG), goes)
    engine.submit(ask(model, [9, 8], depth=depth, max_tokens=80, ignore_eos=True), stays)
    busy.release()
    stays.wait()
    assert goes.wait().stop_origin == "client"
    assert goes.finished.stats.rounds <= 3
    assert stays.tokens == expected


def test_reproducible_rows_take_turns_with_the_shared_ones(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel, widths: list[int]
) -> None:
    fixed = replace(WARM, reproducible=True)
    others = {"max_tokens": 30, "ignore_eos": True}
    expected = [alone(tiny_model, [7 + i, 6], depth=i, sampler=fixed, **others) for i in range(3)]
    busy, listeners = Held(engine), [Listener() for _ in range(5)]
    for i, listener in enumerate(listeners):
        sampler = fixed if i < 3 else WARM
        engine.submit(ask(model, [7 + i, 6], depth=min(i, 2), sampler=sampler, **others), listener)
    busy.release()
    for listener in listeners:
        listener.wait()
    assert [listener.tokens for listener in listeners[:3]] == expected
    assert max(widths) == 2


def test_a_call_comes_between_rounds_and_the_rows_go_on_after_it(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel
) -> None:
    expected = [alone(tiny_model, [i, 6], max_tokens=40, ignore_eos=True) for i in (5, 9)]
    calls = []
    first = Listener(once(lambda: calls.append(engine.call(engine.snapshot, "looking"))))
    listeners = [first, Listener()]
    busy = Held(engine)
    for i, listener in zip((5, 9), listeners, strict=True):
        engine.submit(ask(model, [i, 6], depth=0, max_tokens=40, ignore_eos=True), listener)
    busy.release()
    for listener in listeners:
        listener.wait()
    assert [listener.tokens for listener in listeners] == expected
    [call] = calls
    assert call.result(PATIENCE_S).rows >= 1


def test_a_fault_in_a_shared_round_ends_the_row_that_has_it(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told apart by playing the round once more, each row alone."""
    expected = [alone(tiny_model, [i, 6], max_tokens=40, ignore_eos=True) for i in (5, 9)]
    real = playing.launch

    def launch(batch: Batch, *others: Any) -> Flight:
        if any(row.tokens[0] == 13 and len(row.tokens) > 10 for row in batch.rows):
            raise RuntimeError("this row breaks its round")
        return real(batch, *others)

    monkeypatch.setattr(playing, "launch", launch)
    busy, listeners = Held(engine), [Listener() for _ in range(3)]
    for first, listener in zip((5, 13, 9), listeners, strict=True):
        engine.submit(ask(model, [first, 6], depth=2, max_tokens=40, ignore_eos=True), listener)
    busy.release()
    for listener in listeners:
        listener.wait()
    assert (listeners[1].finished.finish_reason, listeners[1].finished.stop_origin) == ("error", "internal")
    assert len(listeners[1].tokens) >= 6
    assert [listeners[0].tokens, listeners[2].tokens] == expected
    assert engine.snapshot().in_flight == ()


@pytest.mark.parametrize("depth", [0, 2])
def test_a_text_that_cannot_be_told_ends_alone_and_changes_no_neighbours_end(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """It breaks in the very round in which another comes to its end."""
    real, played = Stream.send, dict[str, Stream]()

    def send(stream: Stream, *, final: bool = False) -> None:
        played[stream.request.id] = stream
        ending = any(one.left == 0 for one in played.values() if one is not stream)
        if stream.request.id == "broken" and ending:
            raise RuntimeError("no text for these ids")
        real(stream, final=final)

    monkeypatch.setattr(Stream, "send", send)
    busy, listeners = Held(engine), {name: Listener() for name in ("ends", "broken", "goes on")}
    for name, limit in (("ends", 12), ("broken", 200), ("goes on", 60)):
        request = ask(model, [5, 6], depth=depth, id=name, max_tokens=limit, ignore_eos=True)
        engine.submit(request, listeners[name])
    busy.release()
    ends = {name: listener.wait() for name, listener in listeners.items()}
    assert {
        name: (end.finish_reason, end.stop_origin, end.completion_tokens) for name, end in ends.items()
    } == {
        "ends": ("length", "max_tokens", 12),
        "broken": ("error", "internal", len(listeners["broken"].tokens)),
        "goes on": ("length", "max_tokens", 60),
    }
    assert engine.snapshot().in_flight == ()


def test_rows_beyond_the_bound_wait_for_a_free_one(
    engine: Engine, model: LoadedModel, widths: list[int]
) -> None:
    busy, listeners = Held(engine), [Listener() for _ in range(20)]
    for i, listener in enumerate(listeners):
        engine.submit(ask(model, [5 + i, 6], max_tokens=60 + i, ignore_eos=True), listener)
    busy.release()
    assert [listener.wait().completion_tokens for listener in listeners] == list(range(60, 80))
    assert max(widths) == 8
    assert engine.snapshot().in_flight == ()


def test_what_contexts_hold_is_told_while_rows_live(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = engine.call(lambda: measure_footprint(model), "measuring").result()
    monkeypatch.setattr(model, "footprint", measured)
    seen: list[int] = []
    busy, listeners = (
        Held(engine),
        [Listener(lambda _: seen.append(engine.snapshot().contexts)) for _ in range(2)],
    )
    assert engine.snapshot().contexts == 0
    for i, listener in enumerate(listeners):
        engine.submit(ask(model, [5 + i, 6], max_tokens=20, ignore_eos=True), listener)
    busy.release()
    for listener in listeners:
        listener.wait()
    assert max(seen) > 0
    engine.call(lambda: None, "the turn that ended them is over").result()
    assert engine.snapshot().contexts == 0
