"""What was learnt of a pack's depths outlives the daemon: written as it is learnt, read by whoever loads it next."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mtplxd.engine.depth import DepthController, DraftRoom
from mtplxd.errors import DataLoss, Unavailable
from mtplxd.residency import depth_memory
from mtplxd.residency.catalog import SamplerDefaults
from mtplxd.residency.depth_memory import EVERY_S, SECTION, DepthMemory
from mtplxd.tune.records import TuningFile
from support.depth_sim import CODE, CURVES, DEPTH_MAX, Machine, play
from support.fake_residency import WAIT_S, ThreadEngine


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A file, and memories on it as daemons have them one after the other."""

    def __init__(self, folder: Path) -> None:
        self.file, self.clock, self.engine = TuningFile(folder / "tuning.json"), Clock(), ThreadEngine()
        self._open: list[DepthMemory] = []

    def daemon(self, engine: Any = None) -> DepthMemory:
        self._open.append(DepthMemory(self.file, engine or self.engine, self.clock))
        return self._open[-1]

    def close(self) -> None:
        for memory in self._open:
            memory.close(WAIT_S)

    def records(self) -> dict[str, Any]:
        return self.file._section(self.file._read(), SECTION)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(depth_memory, "body_fingerprint", lambda pack: f"body of {pack.name}")
    monkeypatch.setattr(depth_memory, "own_head_fingerprint", lambda pack: f"head of {pack.name}")
    monkeypatch.setattr(depth_memory, "sampler_defaults", lambda _pack: SamplerDefaults())
    made = Rig(tmp_path)
    yield made
    made.close()


def a_model(number: int = 1, name: str = "pack", **more: Any) -> Any:
    given = {"head": object(), "depths": DepthController(DEPTH_MAX), **more}
    return SimpleNamespace(number=number, pack=SimpleNamespace(name=name), **given)


def learn(model: Any, rounds: int = 200) -> None:
    play(model.depths, lambda *_: CODE, Machine(CURVES["flat"], random.Random(1)), 1, rounds)


def first_depth(model: Any) -> int:
    return model.depths.choose([DraftRoom("new", DEPTH_MAX)])[0]


def settle(memory: DepthMemory) -> None:
    """Waits for all that was handed to the memory's thread, and what that handed to the engine's."""
    memory._worker.submit(lambda: None).result(WAIT_S)
    memory._engine.call(lambda: None, "").result(WAIT_S)


def load(memory: DepthMemory, model: Any, backend: str = "cpu") -> Any:
    memory.loaded(model, backend)
    settle(memory)
    return model


def test_the_next_daemon_begins_with_what_was_learnt(rig: Rig) -> None:
    before = rig.daemon()
    model = load(before, a_model())
    assert first_depth(model) == 1
    learn(model)
    before.close(WAIT_S)
    assert first_depth(load(rig.daemon(), a_model())) >= 5


def test_a_model_that_leaves_memory_is_written_and_found_when_it_is_loaded_again(rig: Rig) -> None:
    memory = rig.daemon()
    model = load(memory, a_model())
    learn(model)
    memory.leaving(model)
    settle(memory)
    assert list(rig.records().values()) == [model.depths.state()]
    assert first_depth(load(memory, a_model(number=2))) >= 5


@pytest.mark.parametrize(("name", "backend"), [("other", "cpu"), ("pack", "gpu")])
def test_another_pack_or_backend_begins_anew(rig: Rig, name: str, backend: str) -> None:
    memory = rig.daemon()
    model = load(memory, a_model())
    learn(model)
    memory.leaving(model)
    assert first_depth(load(memory, a_model(2, name), backend)) == 1


def test_models_in_use_are_written_now_and_then(rig: Rig) -> None:
    memory = rig.daemon()
    model = load(memory, a_model())
    learn(model)
    memory.sweep()
    settle(memory)
    assert rig.records() == {}
    rig.clock.now += EVERY_S
    memory.sweep()
    settle(memory)
    [first] = rig.records().values()
    assert first == model.depths.latest
    learn(model, 100)
    memory.sweep()
    settle(memory)
    assert list(rig.records().values()) == [first]
    rig.clock.now += EVERY_S
    memory.sweep()
    settle(memory)
    assert list(rig.records().values()) == [model.depths.latest] != [first]


def test_what_nobody_used_is_not_written(rig: Rig) -> None:
    memory = rig.daemon()
    memory.leaving(load(memory, a_model()))
    rig.clock.now += EVERY_S
    memory.sweep()
    settle(memory)
    assert rig.records() == {}


def test_models_that_draft_nothing_have_no_record(rig: Rig) -> None:
    memory = rig.daemon()
    for model in (a_model(1, head=None), a_model(2, depths=None)):
        load(memory, model)
        memory.leaving(model)
    memory.close(WAIT_S)
    assert rig.records() == {}


def test_a_damaged_record_is_told_and_learnt_anew(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    memory = rig.daemon()
    model = load(memory, a_model())
    learn(model)
    memory.leaving(model)
    settle(memory)
    [(key, record)] = rig.records().items()
    rig.file.write(SECTION, key, {**record, "seconds": {"": [[1, 0, -1]]}})
    with caplog.at_level(logging.WARNING):
        again = load(memory, a_model(2))
    assert "learnt anew" in caplog.text
    assert first_depth(again) == 1
    learn(again)
    memory.leaving(again)
    settle(memory)
    assert rig.records()[key] == again.depths.state()


def test_a_pack_that_cannot_be_named_loses_its_record_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def damaged(_pack: object) -> str:
        raise DataLoss("damaged file", "model.safetensors", "load it again")

    memory = rig.daemon()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(depth_memory, "body_fingerprint", damaged)
        model = load(memory, a_model())
    assert "not kept" in caplog.text
    learn(model)
    memory.leaving(model)
    settle(memory)
    assert rig.records() == {}
    other = load(memory, a_model(2))
    learn(other)
    memory.leaving(other)
    settle(memory)
    assert len(rig.records()) == 1


def test_an_engine_that_stops_meanwhile_is_no_fault(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    class Stopping:
        def call(self, _fn: object, _reason: str) -> Future[Any]:
            raise Unavailable("the daemon is stopping", None, "start it again")

    memory = rig.daemon()
    model = load(memory, a_model())
    learn(model)
    memory.leaving(model)
    settle(memory)
    late = DepthMemory(rig.file, Stopping(), rig.clock)
    with caplog.at_level(logging.WARNING):
        late.loaded(a_model(2), "cpu")
        late.close(WAIT_S)
    assert caplog.text == ""
