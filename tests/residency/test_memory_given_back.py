"""What a load needed beside the model, and what a model that went had, is given back to the system."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.platform.mlx import mx
from mtplxd.residency import loader as loading
from mtplxd.residency.loader import ModelLoader
from support.tiny_pack import make_tiny_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder: Path = tmp_path_factory.mktemp("packs") / "tiny"
    return read_pack(make_tiny_pack(folder))


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that the allocator still kept each time the C library was asked to give its own back."""
    kept: list[int] = []
    monkeypatch.setattr(loading, "give_back_freed", lambda: kept.append(mx.get_cache_memory()))
    return kept


def test_what_a_load_needed_is_given_back_once_it_is_done(pack: Pack, given_back: list[int]) -> None:
    model = load(pack)
    assert given_back == [0]
    assert model.footprint.position > 0


def test_what_a_model_had_is_given_back_once_it_goes(pack: Pack, given_back: list[int]) -> None:
    models: list[Any] = [load(pack)]
    gone: list[Any] = []
    given_back.clear()
    ModelLoader(lambda: None, gone.append).free(models)
    assert (len(gone), models, given_back) == (1, [], [0])


def test_loads_leave_no_chain_of_draws_that_nobody_made(pack: Pack) -> None:
    def chain() -> int:
        graph = io.StringIO()
        mx.export_to_dot(graph, *mx.random.state)
        return graph.getvalue().count("->")

    models: list[Any] = [load(pack)]
    assert chain() == 0
    ModelLoader(lambda: None, lambda _: None).free(models)


def load(pack: Pack) -> Any:
    return ModelLoader(lambda: None, lambda _: None).load(
        pack, plain=True, depth_max=None, progress=lambda *_: None, cancelled=lambda: False
    )
