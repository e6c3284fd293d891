"""Prompts that begin alike and come at once: the engine reads their beginning once, and nobody waits for the gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from mtplxd.engine import keeping
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Finished, Text
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.tiers import Tiers
from support.families import write_checkpoint

LIMIT_S = 120.0
GREEDY = SamplerSettings(temperature=0.0)


def some(count: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 290, count)]


LONG = some(700, 1)


@pytest.fixture
def index() -> PrefixIndex[Any]:
    return PrefixIndex(1 << 30)


@pytest.fixture
def engine(index: PrefixIndex[Any]) -> Iterator[Engine]:
    engine = Engine(prefix_store=Tiers(index))
    engine.start()
    yield engine
    assert engine.stop(LIMIT_S)


@pytest.fixture(params=["mimo", "qwen3_5", "step3p5"])
def model(request: pytest.FixtureRequest, engine: Engine, tmp_path_factory: Any) -> LoadedModel:
    pack = read_pack(write_checkpoint(tmp_path_factory.mktemp(request.param) / "pack", request.param))
    return engine.call(lambda: load_model(pack), "loading").result(LIMIT_S)


class Hearing:
    """What becomes of one request."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.finished: Finished | None = None
        self.over = threading.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Text):
            self.tokens += event.tokens
        if isinstance(event, Finished):
            self.finished = event
            self.over.set()

    @property
    def cached(self) -> int:
        assert self.over.wait(LIMIT_S)
        assert self.finished is not None
        return self.finished.cached_tokens


def send(engine: Engine, requests: Sequence[Request]) -> list[Hearing]:
    """All of them before the engine takes any in."""
    gate, heard = threading.Event(), [Hearing() for _ in requests]
    engine.call(lambda: gate.wait(LIMIT_S), "measuring")
    for request, hearing in zip(requests, heard, strict=True):
        engine.submit(request, hearing)
    gate.set()
    return heard


def ask(model: LoadedModel, name: str, prompt: list[int], **more: Any) -> Request:
    settings = {"sampler": GREEDY, "max_tokens": 8, "ignore_eos": True, "depth": 1, **more}
    return Request(name, "test", model, prompt, **settings)


def test_one_prompt_sent_four_times_at_once_is_read_once(engine: Engine, model: LoadedModel) -> None:
    heard = send(engine, [ask(model, f"ask {n}", LONG) for n in range(4)])
    assert sorted(one.cached for one in heard) == [0, 699, 699, 699]
    assert len({tuple(one.tokens) for one in heard}) == 1
    [alone] = send(engine, [ask(model, "alone", LONG, sampler=GREEDY)])
    assert alone.cached == 699
    assert alone.tokens == heard[0].tokens


def test_an_answer_says_why_no_more_of_its_prompt_was_found(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pack = read_pack(write_checkpoint(tmp_path_factory.mktemp("mimo") / "pack", "mimo"))
    model = engine.call(lambda: load_model(pack), "loading").result(LIMIT_S)
    parted = [*LONG[:200], *some(100, 2)]
    reasons = []
    for name, prompt in [("new", LONG), ("same", LONG), ("parted", parted), ("short", LONG[:9])]:
        [heard] = send(engine, [ask(model, name, prompt)])
        assert heard.over.wait(LIMIT_S)
        assert heard.finished is not None
        reasons.append(heard.finished.stats.cache_miss)
    assert reasons == ["new_prefix", "", "diverged at 200", "below_minimum"]


def test_those_that_part_get_all_whole_blocks_of_what_they_share(
    engine: Engine, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of states too, which are kept where another one parts, though they are too large to be kept often."""
    monkeypatch.setattr(keeping, "state_bytes", lambda _: 1 << 30)
    parted = [*LONG[:200], *some(100, 2)]
    first, second = send(engine, [ask(model, "long", LONG), ask(model, "parted", parted)])
    assert (first.cached, second.cached) == (0, 192)


def test_who_waits_for_one_that_is_cancelled_goes_on(engine: Engine, model: LoadedModel) -> None:
    gate = threading.Event()
    heard = [Hearing() for _ in range(3)]
    engine.call(lambda: gate.wait(LIMIT_S), "measuring")
    for n, hearing in enumerate(heard):
        engine.submit(ask(model, f"ask {n}", LONG), hearing)
    engine.cancel("ask 0")
    gate.set()
    assert all(one.over.wait(LIMIT_S) for one in heard)
    assert [one.finished.finish_reason for one in heard if one.finished] == ["cancelled", "length", "length"]
    assert sorted(one.cached for one in heard[1:])[-1] == 699
    assert heard[1].tokens == heard[2].tokens
