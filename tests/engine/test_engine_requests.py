"""The engine thread: requests in fair turns, calls between them, and exactly one end for everything that was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Finished, Progress, Text
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.service import Service
from mtplxd.errors import ResourceExhausted, Unavailable
from mtplxd.families.load import LoadedModel, load_model
from support.engines import Held, load_on
from support.listening import PATIENCE_S, Listener, ask, decode
from support.scripted_model import scripted_model

LONG: dict[str, Any] = {"max_tokens": 1500, "ignore_eos": True}


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(queue_limit=6, max_rows=1)
    engine.start()
    yield engine
    assert engine.stop(PATIENCE_S)


@pytest.fixture
def model(engine: Engine, tiny_model: LoadedModel) -> LoadedModel:
    """The tiny model, loaded by the thread that uses it."""
    return load_on(engine, tiny_model.pack)


def on(kind: type[Event], do: Callable[[], object]) -> Callable[[Event], None]:  # type: ignore[valid-type]
    return lambda event: do() if isinstance(event, kind) else None  # type: ignore[func-returns-value]


def ending(listener: Listener) -> tuple[str, str]:
    finished = listener.wait()
    return finished.finish_reason, finished.stop_origin


def test_an_answer_through_the_engine_is_the_decoders(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel
) -> None:
    listener = Listener()
    engine.submit(ask(model, [5, 6, 7], depth=2, ignore_eos=True), listener)
    assert ending(listener) == ("length", "max_tokens")
    assert listener.tokens == decode(ask(tiny_model, [5, 6, 7], ignore_eos=True))[1].tokens


def test_clients_take_turns(engine: Engine, model: LoadedModel) -> None:
    held, order = Held(engine), []
    listeners = []
    for name in ("a0", "a1", "a2", "b0", "b1", "c0"):
        listeners.append(Listener(on(Finished, lambda name=name: order.append(name))))
        engine.submit(ask(model, [5, 6], client=name[0], id=name, max_tokens=2), listeners[-1])
    held.release()
    for listener in listeners:
        listener.wait()
    assert order == ["a0", "b0", "c0", "a1", "b1", "a2"]


def test_a_waiting_request_hears_how_many_are_ahead(engine: Engine, model: LoadedModel) -> None:
    held = Held(engine)
    first, second = Listener(), Listener()
    engine.submit(ask(model, [5, 6], max_tokens=2), first)
    engine.submit(ask(model, [5, 6], max_tokens=2), second)
    held.release()
    first.wait()
    second.wait()
    assert first.progress == []
    assert second.events[0] == Progress("queue", 0, 1)


def test_a_full_queue_refuses_with_a_time_to_try_again(engine: Engine, model: LoadedModel) -> None:
    held, listeners = Held(engine), [Listener() for _ in range(6)]
    for listener in listeners:
        engine.submit(ask(model, [5, 6], max_tokens=1), listener)
    with pytest.raises(ResourceExhausted) as refused:
        engine.submit(ask(model, [5, 6]), Listener())
    assert refused.value.retry_after_s > 0
    held.release()
    for listener in listeners:
        assert ending(listener) == ("length", "max_tokens")


def test_many_streams_at_once_get_each_its_own_text(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel
) -> None:
    prompts = [[3 + n, 40 + n, 80 + n] for n in range(6)]
    listeners = [Listener() for _ in prompts]

    def submit(n: int) -> None:
        request = ask(model, prompts[n], depth=n % 4, client=f"c{n}", max_tokens=12, ignore_eos=True)
        engine.submit(request, listeners[n])

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for prompt, listener in zip(prompts, listeners, strict=True):
        listener.wait()
        assert listener.tokens == decode(ask(tiny_model, prompt, max_tokens=12, ignore_eos=True))[1].tokens


def test_a_seed_means_one_text_whoever_was_served_before(engine: Engine, model: LoadedModel) -> None:
    sampler = SamplerSettings(temperature=0.9, top_p=0.9, seed=3)
    texts = []
    for before in ([], [9, 9], [200, 3, 4, 5]):
        listeners = [Listener(), Listener()]
        if before:
            engine.submit(ask(model, before, sampler=replace(sampler, seed=8), depth=1), listeners[0])
        engine.submit(ask(model, [5, 6, 7], sampler=sampler, depth=2, ignore_eos=True), listeners[1])
        listeners[1].wait()
        texts.append(listeners[1].tokens)
    assert texts[0] == texts[1] == texts[2]


def test_a_cancel_from_the_listener_ends_within_a_round(engine: Engine, model: LoadedModel) -> None:
    request = ask(model, [5, 6, 7], depth=2, **LONG)
    listener = Listener(on(Text, lambda: engine.cancel(request.id)))
    engine.submit(request, listener)
    assert ending(listener) == ("cancelled", "client")
    assert len(listener.tokens) <= 2 * 3


def test_a_waiting_request_is_cancelled_without_being_decoded(engine: Engine, model: LoadedModel) -> None:
    held = Held(engine)
    request, listener = ask(model, [5, 6]), Listener()
    engine.submit(request, listener)
    assert engine.cancel(request.id, "operator")
    assert ending(listener) == ("cancelled", "operator")
    assert not engine.cancel(request.id)
    held.release()
    held.future.result(PATIENCE_S)
    assert listener.events == [listener.finished]


def test_cancelling_what_does_not_exist_says_so(engine: Engine) -> None:
    assert not engine.cancel("nobody")


def test_the_first_origin_of_a_cancel_counts(engine: Engine, model: LoadedModel) -> None:
    request = ask(model, [5, 6, 7], **LONG)

    def cancel_twice() -> None:
        engine.cancel(request.id, "operator")
        engine.cancel(request.id, "client")

    listener = Listener(on(Text, cancel_twice))
    engine.submit(request, listener)
    assert ending(listener) == ("cancelled", "operator")


def test_a_passed_deadline_ends_a_request_before_it_is_decoded(engine: Engine, model: LoadedModel) -> None:
    listener = Listener()
    engine.submit(ask(model, [5, 6], deadline=time.monotonic() - 1), listener)
    assert ending(listener) == ("cancelled", "deadline")
    assert listener.tokens == []


def test_a_deadline_that_passes_in_the_queue_is_heard_while_another_decodes(
    engine: Engine, model: LoadedModel
) -> None:
    held, order = Held(engine), []
    first = Listener(on(Finished, lambda: order.append("first")))
    second = Listener(on(Finished, lambda: order.append("second")))
    engine.submit(ask(model, [5, 6], client="a", max_tokens=20, ignore_eos=True), first)
    engine.submit(ask(model, [5, 6], client="b", deadline=time.monotonic() - 1), second)
    held.release()
    assert ending(second) == ("cancelled", "deadline")
    assert ending(first) == ("length", "max_tokens")
    assert order == ["second", "first"]


@pytest.mark.parametrize("kind", [Progress, Text, Finished])
def test_a_listener_that_fails_ends_its_own_request_only(
    engine: Engine, model: LoadedModel, kind: Any
) -> None:
    def fail() -> None:
        raise RuntimeError("the listener is broken")

    held = Held(engine)
    ahead, broken, after = Listener(), Listener(on(kind, fail)), Listener()
    for listener in (ahead, broken, after):
        engine.submit(ask(model, [5, 6, 7], max_tokens=30, ignore_eos=True), listener)
    held.release()
    assert ending(ahead) == ending(after) == ("length", "max_tokens")
    assert ending(broken) == (("length", "max_tokens") if kind is Finished else ("cancelled", "client"))
    assert engine.snapshot().alive


def test_a_broken_waiting_listener_does_not_hurt_the_request_being_decoded(
    engine: Engine, model: LoadedModel
) -> None:
    def fail(_: Event) -> None:
        raise RuntimeError("the listener is broken")

    held, first = Held(engine), Listener()
    engine.submit(ask(model, [5, 6], client="a", max_tokens=20, ignore_eos=True), first)
    engine.submit(ask(model, [5, 6], client="b", deadline=time.monotonic() - 1), Listener(fail))
    held.release()
    assert ending(first) == ("length", "max_tokens")


def test_a_tokenizer_that_breaks_is_an_error_of_one_request(engine: Engine, model: LoadedModel) -> None:
    class Broken:
        backend = None

        def decode(self, ids: list[int]) -> str:
            raise RuntimeError(f"cannot decode {len(ids)} ids")

    listener, after = Listener(), Listener()
    engine.submit(ask(replace(model, tokenizer=Broken()), [5, 6, 7]), listener)
    engine.submit(ask(model, [5, 6, 7], max_tokens=3), after)
    assert ending(listener) == ("error", "internal")
    assert "see `mtplx logs`" in listener.finished.message
    assert ending(after) == ("length", "max_tokens")


def test_stopping_ends_everything_once_with_origin_shutdown(tiny_model: LoadedModel) -> None:
    engine = Engine()
    engine.start()
    model = engine.call(lambda: load_model(tiny_model.pack), "loading").result(PATIENCE_S)
    started = threading.Event()
    running, waiting = Listener(on(Text, started.set)), Listener()
    engine.submit(ask(model, [5, 6, 7], client="a", **LONG), running)
    engine.submit(ask(model, [5, 6, 7], client="b"), waiting)
    assert started.wait(PATIENCE_S)
    call = engine.call(lambda: 1, "never")
    assert engine.stop(PATIENCE_S)
    assert ending(running) == ending(waiting) == ("cancelled", "shutdown")
    assert waiting.tokens == []
    with pytest.raises(Unavailable):
        call.result(0)
    with pytest.raises(Unavailable):
        engine.submit(ask(model, [5]), Listener())
    with pytest.raises(Unavailable):
        engine.call(lambda: 1, "late")
    assert engine.stop(PATIENCE_S)


def test_stopping_before_starting_ends_what_was_queued(tiny_model: LoadedModel) -> None:
    engine, listener = Engine(), Listener()
    engine.submit(ask(tiny_model, [5]), listener)
    assert engine.stop(0)
    assert ending(listener) == ("cancelled", "shutdown")


def test_a_call_gets_its_turn_before_waiting_requests(engine: Engine, model: LoadedModel) -> None:
    held, order = Held(engine), []
    listeners = [Listener(on(Finished, lambda: order.append("request"))) for _ in range(2)]
    for listener in listeners:
        engine.submit(ask(model, [5, 6], max_tokens=2), listener)
    call = engine.call(lambda: order.append("call"), "loading")
    held.release()
    call.result(PATIENCE_S)
    for listener in listeners:
        listener.wait()
    assert order == ["call", "request", "request"]


def test_a_calls_error_goes_to_its_caller_and_the_engine_goes_on(engine: Engine) -> None:
    def fail() -> None:
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        engine.call(fail, "loading").result(PATIENCE_S)
    assert engine.call(lambda: 41 + 1, "adding").result(PATIENCE_S) == 42


def test_a_cancelled_call_is_never_run(engine: Engine) -> None:
    held, ran = Held(engine), []
    call = engine.call(lambda: ran.append(1), "loading")
    assert call.cancel()
    held.release()
    engine.call(lambda: None, "after").result(PATIENCE_S)
    assert ran == []


@pytest.mark.parametrize("end", ["stop", "die"])
def test_a_call_that_was_given_up_hinders_no_end(end: str) -> None:
    engine = Engine()
    engine.start()
    held = Held(engine)

    def leave() -> None:
        raise SystemExit

    fatal = engine.call(leave, "leaving") if end == "die" else None
    given_up, waiting = engine.call(lambda: 1, "measuring"), engine.call(lambda: 2, "measuring")
    assert given_up.cancel()
    if fatal is None:
        assert not engine.stop(0)
    held.release()
    with pytest.raises(Unavailable):
        waiting.result(PATIENCE_S)
    assert engine.stop(PATIENCE_S)


def test_what_breaks_before_a_call_ends_those_in_service_and_not_the_engine(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def call_once() -> None:
        if not calls:
            calls.append(engine.call(lambda: 41 + 1, "loading"))

    listener = Listener(on(Text, call_once))

    def break_down(_: Service) -> bool:
        raise RuntimeError("nothing lands")

    with monkeypatch.context() as patched:
        patched.setattr(Service, "settle", break_down)
        engine.submit(ask(model, [5, 6, 7], **LONG), listener)
        assert ending(listener) == ("error", "internal")
        assert calls[0].result(PATIENCE_S) == 42
    after = Listener()
    engine.submit(ask(model, [5, 6, 7]), after)
    assert ending(after)[0] in ("length", "stop")


def test_run_inline_decodes_inside_a_call_and_nowhere_else(engine: Engine, model: LoadedModel) -> None:
    request, listener = ask(model, [5, 6, 7], depth=1, ignore_eos=True), Listener()
    with pytest.raises(RuntimeError, match="outside the engine thread"):
        engine.run_inline(request, listener)
    finished = engine.call(lambda: engine.run_inline(request, listener), "measuring").result(PATIENCE_S)
    assert finished == listener.finished
    after = Listener()
    engine.submit(ask(model, [5, 6, 7], ignore_eos=True), after)
    after.wait()
    assert after.tokens == listener.tokens


def test_an_inline_request_is_given_up_by_its_poll_or_by_stopping(tiny_model: LoadedModel) -> None:
    engine = Engine()
    engine.start()
    model = engine.call(lambda: load_model(tiny_model.pack), "loading").result(PATIENCE_S)
    polled = Listener()
    give_up = engine.call(
        lambda: engine.run_inline(ask(model, [5, 6], **LONG), polled, lambda: "client"), "measuring"
    )
    assert give_up.result(PATIENCE_S).stop_origin == "client"
    started = threading.Event()
    stopped = Listener(on(Text, started.set))
    running = engine.call(lambda: engine.run_inline(ask(model, [5, 6], **LONG), stopped), "measuring")
    assert started.wait(PATIENCE_S)
    assert engine.stop(PATIENCE_S)
    assert running.result(0).stop_origin == "shutdown"


def test_the_snapshot_names_who_runs_who_waits_and_for_what(engine: Engine, model: LoadedModel) -> None:
    held = Held(engine)
    seen = []
    running = ask(model, [5, 6, 7], client="a", id="one", max_tokens=3, ignore_eos=True)
    first, second = Listener(on(Text, lambda: seen.append(engine.snapshot()))), Listener()
    engine.submit(running, first)
    engine.submit(ask(model, [5, 6], client="b", id="two", max_tokens=2), second)
    while_held = engine.snapshot()
    assert (while_held.running, while_held.waiting, while_held.busy_with) == (0, 2, "measuring")
    assert [(x.id, x.state, x.waits_for) for x in while_held.in_flight] == [
        ("one", "queue", "measuring"),
        ("two", "queue", "measuring"),
    ]
    held.release()
    first.wait()
    second.wait()
    assert (seen[0].running, seen[0].waiting, seen[0].busy_with) == (1, 1, "")
    assert [(x.id, x.client, x.model, x.waits_for) for x in seen[0].in_flight] == [
        ("one", "a", "tiny", ""),
        ("two", "b", "tiny", "a free row"),
    ]
    assert seen[-1].in_flight[0].prompt_tokens == 3
    assert engine.call(engine.snapshot, "looking").result(PATIENCE_S).in_flight == ()
    assert engine.snapshot().alive


def test_counters_add_up_over_answers(engine: Engine, tiny_model: LoadedModel) -> None:
    script = [10, 11, 12, *range(40, 80)]
    scripted = engine.call(lambda: scripted_model(tiny_model.tokenizer, script), "loading").result(PATIENCE_S)
    for _ in range(3):
        listener = Listener()
        engine.submit(ask(scripted, script[:3], depth=3, max_tokens=8), listener)
        listener.wait()
    counters = engine.call(engine.snapshot, "looking").result(PATIENCE_S).counters
    assert (counters.requests, counters.prompt_tokens, counters.completion_tokens) == (3, 9, 24)
    assert (counters.rounds, counters.drafted, counters.accepted) == (6, 18, 18)


def test_a_model_whose_numbers_are_none_is_known_for_it(engine: Engine, tiny_model: LoadedModel) -> None:
    script = [10, 11, 12, *range(40, 80)]
    make = lambda: scripted_model(tiny_model.tokenizer, script, broken=[20])  # noqa: E731
    scripted = engine.call(make, "loading").result(PATIENCE_S)
    for depth in (0, 3):
        listener = Listener()
        engine.submit(ask(scripted, script[:3], depth=depth), listener)
        assert ending(listener) == ("error", "non_finite")
    assert engine.call(lambda: scripted.troubles, "looking").result(PATIENCE_S) == ("non_finite (2 answers)",)


def test_an_engine_that_dies_leaves_nobody_waiting(tiny_model: LoadedModel) -> None:
    engine = Engine()
    engine.start()
    held, listener = Held(engine), Listener()
    engine.submit(ask(tiny_model, [5]), listener)

    def leave() -> None:
        raise SystemExit

    fatal, never = engine.call(leave, "leaving"), engine.call(lambda: 1, "never")
    held.release()
    assert ending(listener) == ("error", "internal")
    for future, error in ((fatal, SystemExit), (never, Unavailable)):
        with pytest.raises(error):
            future.result(PATIENCE_S)
    assert not engine.snapshot().alive
    with pytest.raises(Unavailable, match="has died"):
        engine.submit(ask(tiny_model, [5]), Listener())
    assert engine.stop(PATIENCE_S)
