"""An engine with the tiny pack, for measurements that decode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.engine.engine import Engine
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from support.tiny_pack import make_tiny_pack


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    engine.start()
    yield engine
    assert engine.stop(60)


@pytest.fixture(scope="module")
def pack_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_pack(tmp_path_factory.mktemp("packs") / "tiny")


@pytest.fixture(scope="module")
def model(engine: Engine, pack_folder: Path) -> LoadedModel:
    return engine.call(lambda: load_model(read_pack(pack_folder)), "loading").result()
