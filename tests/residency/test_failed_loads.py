"""A load that fails, at whatever moment, leaves memory as it was, also while its error is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mtplxd.errors import Cancelled, DataLoss
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.platform.mlx import mx
from mtplxd.residency import loader as loading
from mtplxd.residency.loader import ModelLoader
from support.fake_residency import WAIT_S, make_rig
from support.tiny_pack import make_tiny_pack

TENSORS = 10
"""Steps of a load that are tried out; the tiny pack has more."""


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder: Path = tmp_path_factory.mktemp("packs") / "tiny"
    return read_pack(make_tiny_pack(folder))


@pytest.fixture
def baseline(pack: Pack) -> int:
    """Bytes that MLX holds before a load; what a first load computes once and keeps is there already."""
    models: list[Any] = [load(pack)]
    ModelLoader(lambda: None, lambda _: None).free(models)
    return int(mx.get_active_memory())


def load(pack: Pack, progress: Callable[[int, int], None] = lambda *_: None) -> Any:
    loader = ModelLoader(lambda: None, lambda _: None)
    return loader.load(pack, plain=False, depth_max=None, progress=progress, cancelled=lambda: False)


def held_after(pack: Pack, error: type[BaseException], progress: Callable[[int, int], None]) -> int:
    """Bytes that are held while somebody still has the error."""
    with pytest.raises(error) as failed:
        load(pack, progress)
    held = int(mx.get_active_memory())
    assert failed.value.__traceback__ is not None, "where it failed is still told"
    return held


@pytest.mark.parametrize("at", [1, TENSORS // 2, TENSORS, -1])
def test_a_load_that_ends_at_a_tensor_keeps_none_of_those_before(pack: Pack, baseline: int, at: int) -> None:
    def stop(done: int, total: int) -> None:
        if done == (at if at >= 0 else total):
            raise Cancelled("loading was cancelled")

    assert held_after(pack, Cancelled, stop) == baseline


@pytest.mark.parametrize("step", ["measure_footprint", "facts_of", "controller_of"])
def test_a_load_that_fails_behind_the_last_tensor_keeps_no_model(
    pack: Pack, baseline: int, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise DataLoss("damaged")

    homes = {"measure_footprint": "footprint", "facts_of": "identity", "controller_of": "choosing"}
    monkeypatch.setattr(f"mtplxd.engine.{homes[step]}.{step}", fail)
    assert held_after(pack, DataLoss, lambda *_: None) == baseline


def test_a_machine_that_has_no_more_to_give_gets_back_what_it_gave(pack: Pack, baseline: int) -> None:
    def exhaust(done: int, total: int) -> None:
        if done == total // 2:
            raise RuntimeError("[malloc] Unable to allocate 123 bytes.")

    assert held_after(pack, MemoryError, exhaust) == baseline


def test_a_failed_load_gives_back_what_it_was_read_in(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(loading, "give_back_freed", lambda: given.append(mx.get_cache_memory()))

    def stop(done: int, _: int) -> None:
        if done == TENSORS:
            raise Cancelled("loading was cancelled")

    held_after(pack, Cancelled, stop)
    assert given == [0]


def test_a_model_that_nobody_can_be_given_is_freed(tmp_path: Path) -> None:
    rig = make_rig(tmp_path)
    rig.catalog.add("a")

    def refuse(_: Any) -> None:
        raise ValueError("a bug")

    rig.residency._settle = refuse
    with pytest.raises(ValueError, match="a bug"):
        rig.residency.acquire("a").result(WAIT_S)
    assert rig.loader.events == ["load a", "free a"]
    assert rig.states() == {"a": "failed"}
    [shown] = rig.residency.views()
    assert (shown.bytes_body, shown.bytes_head) == (0, 0)  # it holds nothing, nor is anything freed with it
    rig.residency._settle = None
    rig.load("a")
    assert rig.states() == {"a": "ready"}
    rig.residency.close()
