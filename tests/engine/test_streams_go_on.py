"""While a long prompt is read and its row joins, streams wait for a little of that at a time, and no text changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest
from mtplxd.engine import player as playing
from mtplxd.engine import prefill as reading
from mtplxd.engine import service as serving
from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Text
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import land
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import mx
from support.engines import load_on
from support.listening import PATIENCE_S, Listener, ask, decode

LONG = [5 + 7 * place % 40 for place in range(400)]
ROUND, PART, LAYER = "round", "part of a chunk", "layer of a row"


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(queue_limit=64, max_rows=8)
    engine.start()
    yield engine
    assert engine.stop(PATIENCE_S)


@pytest.fixture
def model(engine: Engine, tiny_model: LoadedModel) -> LoadedModel:
    return load_on(engine, tiny_model.pack)


class Hurried:
    """There is never time for more than one part."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def over(self) -> bool:
        return True


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the device was given, in its order, where there is time for one part at a time."""
    seen: list[str] = []
    make_ready = Batch.make_ready

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(mx, name)

        def eval(self, *arrays: Any) -> None:
            seen.append(PART)
            mx.eval(*arrays)

    def spy_land(*arguments: Any) -> Any:
        seen.append(ROUND)
        return land(*arguments)

    def spy_ready(batch: Batch, other: Batch, over: Callable[[], bool]) -> bool:
        def counted() -> bool:
            seen.append(LAYER)
            return over()

        return make_ready(batch, other, counted)

    monkeypatch.setattr(reading, "mx", Spy())
    monkeypatch.setattr(playing, "land", spy_land)
    monkeypatch.setattr(Batch, "make_ready", spy_ready)
    monkeypatch.setattr(serving, "Pace", Hurried)
    return seen


def at_first_text(do: Callable[[], object]) -> Callable[[Event], None]:
    begun = threading.Event()

    def react(event: Event) -> None:
        if isinstance(event, Text) and not begun.is_set():
            begun.set()
            do()

    return react


@pytest.mark.parametrize("prompts", [1, 2])
def test_between_two_rounds_of_a_stream_there_is_one_part_of_anything_else(
    engine: Engine, model: LoadedModel, tiny_model: LoadedModel, done: list[str], prompts: int
) -> None:
    asked = [[7 + number, *LONG] for number in range(prompts)]
    settings: dict[str, Any] = {"max_tokens": 30, "ignore_eos": True, "depth": 2}
    stream_settings = {
        **settings,
        "max_tokens": 400,
        "sampler": SamplerSettings(0.7, seed=3, acceptance="coupled"),
    }
    expected = [decode(ask(tiny_model, prompt, **settings))[1].tokens for prompt in asked]
    expected_stream = decode(ask(tiny_model, [5, 6, 7], **stream_settings))[1].tokens
    done.clear()
    long = [Listener() for _ in asked]

    def submit() -> None:
        done.clear()
        for prompt, listener in zip(asked, long, strict=True):
            engine.submit(ask(model, prompt, **settings), listener)

    stream = Listener(at_first_text(submit))
    engine.submit(ask(model, [5, 6, 7], **stream_settings), stream)
    stream.wait()
    assert [listener.wait().completion_tokens for listener in long] == [30] * prompts
    assert [listener.tokens for listener in long] == expected
    assert stream.tokens == expected_stream
    between = [len([*group]) for kind, group in groupby(done, lambda one: one == ROUND) if not kind]
    layers = len(tiny_model.target.make_cache(1))
    assert done.count(PART) >= prompts * layers
    assert done.count(LAYER) >= prompts * layers
    assert max(between) == 1


def test_a_row_is_copied_a_layer_at_a_time_and_only_that(tiny_model: LoadedModel) -> None:
    batch, other = filled(tiny_model, 20), filled(tiny_model, 399)
    layers = [*zip([*batch.cache, *batch.head_cache], [*other.cache, *other.head_cache], strict=True)]
    sizes = [mine.nbytes for mine, _ in layers]
    for count in range(1, len(layers) + 1):
        assert batch.make_ready(other, lambda: True) == (count == len(layers))
        grown = [mine.nbytes > size for (mine, _), size in zip(layers, sizes, strict=True)]
        assert grown == [place < count for place in range(len(layers))]
        assert [len(mine.lengths) for mine, _ in layers] == [1] * len(layers)
    assert batch.make_ready(other, lambda: True)
    batch.join(other)
    assert [mine.lengths for mine, _ in layers[: len(batch.cache)]] == [[20, 399]] * len(batch.cache)


def test_a_row_that_leaves_meanwhile_makes_it_begin_again(tiny_model: LoadedModel) -> None:
    batch, other = filled(tiny_model, 20), filled(tiny_model, 300)
    batch.join(filled(tiny_model, 30))
    assert batch.make_ready(other, lambda: False)
    batch.leave(0)
    assert not batch.make_ready(other, lambda: True)
    assert batch.make_ready(other, lambda: False)
    batch.join(other)
    assert batch.cache[0].lengths == [30, 300]


def test_a_head_that_only_one_has_is_met_when_the_row_joins(tiny_model: LoadedModel) -> None:
    batch, other = filled(tiny_model, 20, depth=0), filled(tiny_model, 300)
    assert batch.head is None
    assert batch.make_ready(other, lambda: False)
    batch.join(other)
    assert batch.head is tiny_model.head
    assert [len(layer.lengths) for layer in batch.head_cache] == [2] * len(batch.head_cache)


def filled(model: LoadedModel, count: int, depth: int = 2) -> Batch:
    """A batch of one row behind so many positions."""
    request = ask(model, LONG[: count + 1], depth=depth)
    running = Prefill(batch := open_batch(request), request.prompt)
    running.step(512)
    while not running.finished:
        running.step(512)
    return batch


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize("leaver", ["joining", "stream"])
def test_who_leaves_while_a_row_joins_takes_nobody_along(
    engine: Engine,
    model: LoadedModel,
    tiny_model: LoadedModel,
    leaver: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, Any] = {"max_tokens": 30, "ignore_eos": True, "depth": 2}
    expected = decode(ask(tiny_model, LONG, **settings))[1].tokens
    stream, long, other = Listener(), Listener(), Listener()
    requests = [
        ask(model, [5, 6, 7], **{**settings, "max_tokens": 1500}),
        ask(model, LONG, **settings),
        ask(model, [9, 8], **{**settings, "max_tokens": 300}),
    ]
    real, left = Batch.make_ready, threading.Event()

    def leave(batch: Batch, with_whom: Batch, over: Callable[[], bool]) -> bool:
        if len(with_whom.rows[0].tokens) == len(LONG) and not left.is_set():
            left.set()
            engine.cancel(requests[1 if leaver == "joining" else 0].id)
        return real(batch, with_whom, over)

    monkeypatch.setattr(Batch, "make_ready", leave)
    stream.reaction = at_first_text(lambda: engine.submit(requests[2], other))
    other.reaction = at_first_text(lambda: engine.submit(requests[1], long))
    engine.submit(requests[0], stream)
    assert other.wait().completion_tokens == 300
    assert other.tokens == decode(ask(tiny_model, [9, 8], **{**settings, "max_tokens": 300}))[1].tokens
    if leaver == "joining":
        assert long.wait().finish_reason == "cancelled"
        engine.cancel(requests[0].id)
        assert stream.wait().finish_reason == "cancelled"
    else:
        assert stream.wait().finish_reason == "cancelled"
        assert long.wait().completion_tokens == 30
        assert long.tokens == expected
    assert left.is_set()


@pytest.mark.parametrize("launching_computes", [True, False])
@pytest.mark.parametrize("streams", [1, 2])
def test_who_shares_rounds_hears_of_one_before_the_next_is_computed(
    engine: Engine,
    model: LoadedModel,
    monkeypatch: pytest.MonkeyPatch,
    launching_computes: bool,
    streams: int,
) -> None:
    """Where launching leaves the work to the device, the next round is under way while streams are told of this one."""
    pending: list[tuple[int, bool]] = []
    turn = playing.Player.turn

    def watched(player: playing.Player, go_on: bool) -> Any:
        ended = turn(player, go_on)
        pending.append((len(player.streams), player.in_flight))
        return ended

    monkeypatch.setattr(serving, "launches_compute", lambda: launching_computes)
    monkeypatch.setattr(playing.Player, "turn", watched)
    listeners = [Listener() for _ in range(streams)]

    def submit_all() -> None:  # on the engine's thread: they come in together
        for number, listener in enumerate(listeners):
            engine.submit(ask(model, [5 + number, 6, 7], max_tokens=20, ignore_eos=True, depth=0), listener)

    engine.call(submit_all, "submitting").result(PATIENCE_S)
    for listener in listeners:
        listener.wait()
    together = [in_flight for count, in_flight in pending if count == streams]
    assert (True in together) == (streams == 1 or not launching_computes)
    if streams == 1:
        assert together[0] == (not launching_computes), "its first token waited for a second round"
        assert together[1]
