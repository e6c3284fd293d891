"""What tuning chose is what requests have that name no depth: found at a load, told at once, cleared, overruled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mtplxd.engine.depth import DepthController, DraftRoom
from mtplxd.packs.pack import Pack
from mtplxd.residency import depth_memory
from mtplxd.residency.catalog import SamplerDefaults
from mtplxd.residency.depth_memory import SECTION, DepthMemory
from mtplxd.tune.plan import AUTO
from mtplxd.tune.records import TuningFile
from mtplxd.tune.tuned import TunedDepth
from support.fake_residency import WAIT_S, Rig, ThreadEngine

CURVE = {
    "version": 1,
    "acceptance": {"reached": [200.0, 150.0, 100.0], "passed": [180.0, 130.0, 80.0]},
    "seconds": {"": [[1, 0, 0.1], [1, 1, 0.11], [1, 2, 0.12], [1, 3, 0.13]]},
}
TUNED = TunedDepth(
    depth=3, ratio=1.4, low=1.3, high=1.5, acceptance=0.6, measured_at=1.7e9, settings="", curve=CURVE
)


@pytest.fixture
def file(tmp_path: Path) -> TuningFile:
    return TuningFile(tmp_path / "tuning.json")


@pytest.fixture
def memory(file: TuningFile, monkeypatch: pytest.MonkeyPatch) -> Iterator[DepthMemory]:
    monkeypatch.setattr(depth_memory, "body_fingerprint", lambda pack: f"body of {pack.name}")
    monkeypatch.setattr(depth_memory, "own_head_fingerprint", lambda pack: f"head of {pack.name}")
    monkeypatch.setattr(depth_memory, "sampler_defaults", lambda _pack: SamplerDefaults())
    made = DepthMemory(file, ThreadEngine())
    yield made
    made.close(WAIT_S)


def a_model(number: int = 1, name: str = "pack") -> Any:
    return SimpleNamespace(
        number=number, pack=SimpleNamespace(name=name), head=object(), depths=DepthController(8)
    )


def settle(memory: DepthMemory, model: Any) -> None:
    memory.settle(model, WAIT_S)
    memory._engine.call(lambda: None, "").result(WAIT_S)


def listen(memory: DepthMemory) -> list[tuple[str, int | None]]:
    heard: list[tuple[str, int | None]] = []
    memory.listen(lambda pack, tuned: heard.append((pack.name, tuned.depth if tuned else None)))
    return heard


def test_a_choice_is_told_at_once_and_at_every_later_load(memory: DepthMemory) -> None:
    heard, model = listen(memory), a_model()
    memory.loaded(model, "cpu")
    settle(memory, model)
    assert heard == []
    assert memory.keep_tuned(model.number, memory.key_of(model, {}), TUNED)
    assert heard == [("pack", 3)]
    memory.leaving(model)
    again = a_model(2)
    memory.loaded(again, "cpu")
    settle(memory, again)
    assert heard == [("pack", 3), ("pack", 3)]
    assert memory.clear_tuned(again.number, memory.key_of(again, {}))
    assert heard[-1] == ("pack", None)
    assert not memory.clear_tuned(again.number, memory.key_of(again, {}))


def test_a_choice_for_another_sampler_is_kept_and_not_used(memory: DepthMemory) -> None:
    heard, model = listen(memory), a_model()
    memory.loaded(model, "cpu")
    key = memory.key_of(model, {"temperature": 1.5})
    assert memory.keep_tuned(model.number, key, TUNED)
    assert heard == []
    assert memory.find_tuned(key) is not None
    assert memory.find_tuned(memory.key_of(model, {})) is None


def test_a_model_that_left_meanwhile_leaves_its_record(memory: DepthMemory) -> None:
    heard, model = listen(memory), a_model()
    memory.loaded(model, "cpu")
    key = memory.key_of(model, {})
    memory.leaving(model)
    assert memory.keep_tuned(model.number, key, TUNED)
    assert heard == []
    assert memory.find_tuned(key) is not None


def test_the_curve_starts_a_controller_that_has_learnt_nothing(memory: DepthMemory) -> None:
    model = a_model()
    memory.loaded(model, "cpu")
    settle(memory, model)
    assert model.depths.choose([DraftRoom("a", 8)]) == [1]
    memory.keep_tuned(model.number, memory.key_of(model, {}), TUNED)
    memory.leaving(model)
    again = a_model(2)
    memory.loaded(again, "cpu")
    settle(memory, again)
    assert again.depths.choose([DraftRoom("a", 8)])[0] >= 3


def test_what_was_learnt_goes_before_the_curve(memory: DepthMemory, file: TuningFile) -> None:
    model = a_model()
    memory.loaded(model, "cpu")
    settle(memory, model)
    memory.keep_tuned(model.number, memory.key_of(model, {}), TUNED)
    worse = {
        "version": 1,
        "acceptance": {"reached": [400.0, 4.0], "passed": [4.0, 0.0]},
        "seconds": {"": [[1, 0, 0.1], [1, 1, 0.15]]},
    }
    [key] = {kept.key for kept in memory._kept.values()}
    file.write(SECTION, key, worse)
    again = a_model(2)
    memory.loaded(again, "cpu")
    settle(memory, again)
    assert again.depths.choose([DraftRoom("a", 8)]) == [0]


def lease_of(rig: Rig) -> tuple[int, bool]:
    lease = rig.residency.acquire("a").result(WAIT_S)
    lease.release()
    return lease.depth, lease.auto


def ready(rig: Rig) -> Pack:
    pack = rig.catalog.add("a")
    rig.load("a")
    return pack


def test_requests_that_name_no_depth_have_the_tuned_one_until_it_is_cleared(rig: Rig) -> None:
    pack = ready(rig)
    before = lease_of(rig)
    assert before[1]
    rig.residency.note_tuned(pack, TUNED)
    assert lease_of(rig) == (3, False)
    [view] = rig.residency.views()
    assert (view.depth, view.tuned, view.tuned_used) == (3, TUNED, True)
    assert view.traffic == CURVE
    rig.residency.note_tuned(pack, replace(TUNED, depth=AUTO))
    assert lease_of(rig) == before
    rig.residency.note_tuned(pack, None)
    assert lease_of(rig) == before
    assert rig.residency.views()[0].tuned is None


@pytest.mark.parametrize(
    ("wish", "found"), [({"depth": 1, "auto": False}, (1, False)), ({"auto": True}, (1, True))]
)
def test_a_depth_that_a_model_was_loaded_with_goes_first(
    rig: Rig, wish: dict[str, Any], found: tuple[int, bool]
) -> None:
    pack = ready(rig)
    rig.residency.note_tuned(pack, TUNED)
    lease = rig.residency.acquire("a").result(WAIT_S)
    rig.residency.configure(lease, **wish)
    lease.release()
    assert lease_of(rig) == found
    assert not rig.residency.views()[0].tuned_used


def test_a_keep_alive_alone_leaves_the_tuned_depth_in_force(rig: Rig) -> None:
    pack = ready(rig)
    rig.residency.note_tuned(pack, TUNED)
    lease = rig.residency.acquire("a").result(WAIT_S)
    rig.residency.configure(lease, keep_alive_s=5.0)
    lease.release()
    assert lease_of(rig) == (3, False)


def test_a_model_without_its_head_has_no_tuned_depth(rig: Rig) -> None:
    pack = rig.catalog.add("a")
    rig.load("a", headless=True)
    rig.residency.note_tuned(pack, TUNED)
    assert lease_of(rig)[0] == 0
    assert rig.residency.views()[0].tuned is None


def test_a_tuned_depth_never_goes_beyond_what_the_model_was_loaded_for(rig: Rig) -> None:
    pack = rig.catalog.add("a")
    rig.load("a", depth_max=2)
    rig.residency.note_tuned(pack, TUNED)
    assert lease_of(rig) == (2, False)


def test_what_is_found_before_a_model_is_handed_out_holds_for_the_first_request(tmp_path: Path) -> None:
    from support.fake_residency import make_rig

    rig = make_rig(tmp_path)
    pack = rig.catalog.add("a")
    rig.residency._settle = lambda model: rig.residency.note_tuned(model.pack, TUNED)
    assert lease_of(rig) == (3, False)
    assert pack.name == "a"
    rig.residency.close()
