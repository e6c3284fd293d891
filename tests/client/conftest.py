"""A fake daemon, and clients of it, for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mtplx_client import Client
from support.fake_daemon import FakeDaemon, fake_daemon


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with fake_daemon() as running:
        yield running


@pytest.fixture
def client(daemon: FakeDaemon) -> Iterator[Client]:
    with Client(daemon.socket) as connected:
        yield connected
