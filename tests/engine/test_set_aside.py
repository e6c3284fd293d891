"""Rows give up their place for memory or for somebody more urgent, and go on later as if nothing had been."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from mtplxd.engine.batch import open_batch
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Text
from mtplxd.engine.footprint import measure_footprint
from mtplxd.engine.prefixes import Prefixes
from mtplxd.engine.request import BACKGROUND, SamplerSettings
from mtplxd.engine.served import Served
from mtplxd.engine.service import Service
from mtplxd.engine.stream import Stream
from mtplxd.engine.ticket import Ticket
from mtplxd.errors import ResourceExhausted
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.tiers import Tiers
from support.engines import Held, load_on
from support.listening import PATIENCE_S, Listener, ask, decode

WARM = SamplerSettings(0.8, top_p=0.9, acceptance="coupled", seed=11)
LONG: dict[str, Any] = {"max_tokens": 150, "ignore_eos": True}


class Plan:
    """A memory plan that a test turns down and up."""

    def __init__(self) -> None:
        self.bytes = 1 << 40
        self.store: Tiers[Any] = Tiers(PrefixIndex(1 << 24))

    def __call__(self, _held: int) -> int:
        return self.bytes


@pytest.fixture
def plan() -> Plan:
    return Plan()


@pytest.fixture
def engine(plan: Plan) -> Iterator[Engine]:
    engine = Engine(queue_limit=64, max_rows=2, kv_budget=plan, prefix_store=plan.store)
    engine.start()
    yield engine
    assert engine.stop(PATIENCE_S)


@pytest.fixture
def model(engine: Engine, tiny_model: LoadedModel) -> LoadedModel:
    """The tiny model, loaded by the thread that uses it, and weighed."""

    def load() -> LoadedModel:
        model = load_model(tiny_model.pack)
        model.footprint = measure_footprint(model)
        return model

    return engine.call(load, "loading").result(PATIENCE_S)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Who was set aside, and whether with a copy."""
    seen: list[tuple[str, bool]] = []
    real = Service._set_aside

    def set_aside(self: Service, aside: Any) -> None:
        seen.append((aside.id, aside.copy))
        real(self, aside)

    monkeypatch.setattr(Service, "_set_aside", set_aside)
    return seen


def after(count: int, do: Callable[[], object]) -> Callable[[Event], None]:
    """Does something once so many texts were heard."""
    heard = [0]

    def react(event: Event) -> None:
        heard[0] += isinstance(event, Text)
        if isinstance(event, Text) and heard[0] == count:
            do()

    return react


def play(
    engine: Engine, model: LoadedModel, asked: list[tuple[list[int], dict[str, Any]]], reaction: Any
) -> list[Listener]:
    busy = Held(engine)
    listeners = [Listener(reaction) if place == 0 else Listener() for place in range(len(asked))]
    for (prompt, others), listener in zip(asked, listeners, strict=True):
        engine.submit(ask(model, prompt, **others), listener)
    busy.release()
    for listener in listeners:
        listener.wait()
    return listeners


def test_a_request_that_there_is_no_memory_for_says_so_while_it_waits(
    engine: Engine, model: LoadedModel, plan: Plan
) -> None:
    plan.bytes = model.footprint.bytes(1, 256)
    seen: list[str] = []

    def look() -> None:
        seen.extend(one.waits_for for one in engine.snapshot().in_flight)

    play(engine, model, [([5, 6], LONG), ([7, 8], LONG)], after(20, look))
    assert seen == ["", "memory"]


@pytest.mark.parametrize(
    ("sampler", "depth"),
    [(SamplerSettings(0.0), 2), (WARM, 0), (WARM, 2), (replace(WARM, reproducible=True), 2)],
    ids=["greedy", "plain", "seed", "bits"],
)
def test_rows_that_memory_runs_out_for_go_on_later_with_the_same_text(
    engine: Engine,
    model: LoadedModel,
    tiny_model: LoadedModel,
    plan: Plan,
    moves: list[tuple[str, bool]],
    sampler: SamplerSettings,
    depth: int,
) -> None:
    asked = [
        ([5 + i] * (20 + 70 * i), {"id": f"row{i}", "depth": depth, "sampler": sampler, **LONG})
        for i in range(2)
    ]
    expected = [
        decode(ask(tiny_model, prompt, **{**others, "id": "alone"}))[1].tokens for prompt, others in asked
    ]
    one = model.footprint.bytes(1, 256)
    listeners = play(engine, model, asked, after(10, lambda: setattr(plan, "bytes", one)))
    assert moves
    assert [listener.tokens for listener in listeners] == expected
    assert [listener.finished.finish_reason for listener in listeners] == ["length"] * 2


def test_what_a_row_held_is_computed_again_where_no_copy_fits(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel, plan: Plan, moves: list[tuple[str, bool]]
) -> None:
    sampler = replace(WARM, reproducible=True)
    asked = [([5 + i] * 90, {"id": f"row{i}", "depth": 2, "sampler": sampler, **LONG}) for i in range(2)]
    expected = [
        decode(ask(tiny_model, prompt, **{**others, "id": "alone"}))[1].tokens for prompt, others in asked
    ]
    tight = model.footprint.bytes(1, 256)
    listeners = play(engine, model, asked, after(40, lambda: setattr(plan, "bytes", tight)))
    assert ("row1", False) in moves
    assert [listener.tokens for listener in listeners] == expected


def test_an_interactive_request_takes_the_place_of_a_background_row(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel, moves: list[tuple[str, bool]]
) -> None:
    order: list[str] = []
    urgent = Listener()

    def ask_urgently() -> None:
        engine.submit(ask(model, [9, 9], id="urgent", max_tokens=5, ignore_eos=True), urgent)

    asked = [
        ([5 + i, 6], {"id": f"back{i}", "priority": BACKGROUND, "depth": 1, "sampler": WARM, **LONG})
        for i in range(2)
    ]
    expected = [
        decode(ask(tiny_model, prompt, **{**others, "id": "alone"}))[1].tokens for prompt, others in asked
    ]
    urgent.reaction = lambda _: order.append("urgent") if urgent.done.is_set() else None
    listeners = play(engine, model, asked, after(5, ask_urgently))
    urgent.wait()
    order += ["background"]
    assert order == ["urgent", "background"]
    assert [name for name, _ in moves] == ["back1"]
    assert [listener.tokens for listener in listeners] == expected


def test_a_context_that_can_never_be_held_is_refused_at_once(
    engine: Engine, model: LoadedModel, plan: Plan
) -> None:
    plan.bytes = model.footprint.bytes(1, 128)
    with pytest.raises(ResourceExhausted, match="memory") as refused:
        engine.submit(ask(model, [5] * 300, max_tokens=20), Listener())
    assert refused.value.needed > refused.value.available


def test_a_row_set_aside_is_cancelled_where_it_is(
    engine: Engine, model: LoadedModel, plan: Plan, moves: list[tuple[str, bool]]
) -> None:
    def starve() -> None:
        plan.bytes = model.footprint.bytes(1, 256)

    def react(event: Event) -> None:
        squeeze(event)
        if any(one.state == "set_aside" for one in engine.snapshot().in_flight):
            assert engine.snapshot().set_aside == 1
            engine.cancel(moves[-1][0], "operator")

    squeeze = after(10, starve)
    asked = [([5 + i] * 30, {"id": f"row{i}", **LONG}) for i in range(2)]
    first, second = play(engine, model, asked, react)
    assert first.finished.finish_reason == "length"
    assert second.finished.stop_origin == "operator"


def test_prompts_that_are_equal_are_read_once(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel
) -> None:
    prompt = list(range(5, 105))
    expected = decode(ask(tiny_model, prompt, max_tokens=12, depth=2))[1].tokens
    asked = [(prompt, {"depth": 2, "max_tokens": 12}) for _ in range(4)]
    listeners = play(engine, model, asked, lambda _: None)
    assert [listener.tokens for listener in listeners] == [expected] * 4
    cached = [listener.finished.cached_tokens for listener in listeners]
    assert cached[0] == 0
    assert cached[1:] == [len(prompt) - 1] * 3


def test_a_model_that_leaves_takes_what_was_kept_of_prompts_with_it(
    engine: Engine, model: LoadedModel, plan: Plan
) -> None:
    listener = Listener()
    engine.submit(ask(model, list(range(5, 105)), max_tokens=2), listener)
    listener.wait()
    assert engine.call(lambda: plan.store.nbytes, "looking").result(PATIENCE_S) > 0
    engine.call(lambda: engine.forget(model), "unloading").result(PATIENCE_S)
    assert plan.store.nbytes == 0


@pytest.mark.parametrize("reproducible", [False, True])
def test_a_row_that_plays_alone_gives_its_place_up_and_gets_it_back(
    plan: Plan, tiny_model: LoadedModel, moves: list[tuple[str, bool]], reproducible: bool
) -> None:
    """The one place there is: an interactive request takes it from a background row, which then ends with its text."""
    engine = Engine(queue_limit=64, max_rows=1, kv_budget=plan, prefix_store=plan.store)
    engine.start()
    model = load_on(engine, tiny_model.pack)
    settings = {"depth": 2, "sampler": replace(WARM, reproducible=reproducible), **LONG}
    expected = [decode(ask(tiny_model, prompt, **settings))[1].tokens for prompt in ([5] * 50, [6] * 20)]
    urgent = Listener()
    waiting = Listener(after(10, lambda: engine.submit(ask(model, [6] * 20, **settings), urgent)))
    engine.submit(ask(model, [5] * 50, id="back", priority=BACKGROUND, **settings), waiting)
    ends = [listener.wait().finish_reason for listener in (waiting, urgent)]
    assert engine.stop(PATIENCE_S)
    assert moves == [("back", True)]
    assert ends == ["length", "length"]
    assert [waiting.tokens, urgent.tokens] == expected


def test_a_row_that_loses_its_copy_holds_nothing(tiny_model: LoadedModel) -> None:
    request = ask(tiny_model, list(range(5, 45)))
    batch = open_batch(request)
    ticket = Ticket(request, Listener())
    stream = Stream(request, batch.rows[0], ticket.send, ticket.poll, 0.0)
    sought = Prefixes(Tiers(PrefixIndex(1 << 24))).seek(request)
    served = Served(ticket, stream, batch, sought, sought.begin(batch), bytes_aside=7)
    caches = [weakref.ref(layer) for layer in batch.cache]
    del batch, sought
    served.lose()
    gc.collect()
    assert served.bytes_aside == 0
    assert [layer() for layer in caches] == [None] * len(caches)
