"""A tiny real model and its loaded form, shared by the tests of this room; MLX work is awaited after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.families.protocols import Head, Target
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.table_model import TableHead, TableTarget
from support.tiny_pack import make_tiny_pack


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(read_pack(make_tiny_pack(tmp_path_factory.mktemp("packs") / "tiny")))


@pytest.fixture(autouse=True)
def _await_device() -> Iterator[None]:
    yield
    mx.synchronize()


@pytest.fixture(params=["table", "llama"])
def model(request: pytest.FixtureRequest, tiny_model: LoadedModel) -> tuple[Target, Head]:
    """A body and its head: one whose law is a table, and a tiny real one."""
    if request.param == "llama":
        assert tiny_model.head is not None
        return tiny_model.target, tiny_model.head
    target = TableTarget(vocab=300)
    return target, TableHead(target, range(0, 300, 2))
