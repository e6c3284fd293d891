"""What holds for every test of a command: its modules are found as the commands find each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands import each other from beside themselves."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(sys, "path", list(sys.path))
