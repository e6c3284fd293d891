"""The real model's pack, pulled by `make test` before the tests run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mtplxd.errors import NotFound
from mtplxd.packs.pack import Pack
from mtplxd.packs.resolver import resolve
from mtplxd.paths import Home, resolve_home


@pytest.fixture(scope="session")
def real_pack() -> Pack:
    pulled = Home(Path(sys.prefix, "home"))  # where `make test` puts it
    try:
        return resolve("smollm2-135m", pulled if pulled.packs.is_dir() else resolve_home())
    except NotFound:
        pytest.skip("needs the real weights: run `mtplx pull smollm2-135m`")
