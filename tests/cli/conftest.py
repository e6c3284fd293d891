"""A fake daemon, an empty home, and the command line run against them inside this process."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mtplx_client.cli import main
from support.fake_daemon import FakeDaemon, fake_daemon


@dataclass(frozen=True)
class Result:
    """What one command line did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def events(self) -> list[Any]:
        """The JSON documents on stdout, a line each."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with fake_daemon() as running:
        yield running


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mtplx-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def environment(daemon: FakeDaemon, home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables that lead the command line to the fake daemon; set for this process too."""
    chosen = {"MTPLXD_HOME": str(home), "MTPLXD_SOCKET": str(daemon.socket), "COLUMNS": "80"}
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return chosen


@pytest.fixture
def mtplx(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    del environment

    def run(*argv: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = main(argv)
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run
