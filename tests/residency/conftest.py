from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_residency import Rig, make_rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = make_rig(tmp_path)
    yield rig
    rig.loader.gate.set()
    rig.residency.close()
