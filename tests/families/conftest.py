"""The tiny pack and its loaded form, shared by the tests of this room; MLX work is awaited after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.tiny_pack import make_tiny_pack


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_pack(tmp_path_factory.mktemp("packs") / "tiny")


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Path) -> LoadedModel:
    return load_model(read_pack(tiny_folder))


@pytest.fixture(autouse=True)
def _await_device() -> Iterator[None]:
    yield
    mx.synchronize()
