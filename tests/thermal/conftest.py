"""A controller of fans that does not exist, and a helper that moves its fans."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_smc import FakeSmc
from support.fand import Fand


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: sockets have short names."""
    made = Path(tempfile.mkdtemp(prefix="mtplx-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def smc(folder: Path) -> FakeSmc:
    return FakeSmc(folder / "smc")


@pytest.fixture
def fand(folder: Path, smc: FakeSmc) -> Iterator[Fand]:
    helper = Fand(folder / "run", smc)
    yield helper
    if helper.process is not None:
        helper.kill()
