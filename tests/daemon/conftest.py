from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon_process import short_folder
from support.tiny_pack import make_tiny_pack


@pytest.fixture
def home() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "home"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a head."""
    return make_tiny_pack(tmp_path_factory.mktemp("packs") / "tiny")


@pytest.fixture(scope="session")
def headless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model without a head."""
    return make_tiny_pack(tmp_path_factory.mktemp("packs") / "headless", head=False, seed=1)
