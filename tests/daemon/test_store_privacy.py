"""A folder of the store that had to be made is kept out of backups, and one that they copy all the same is told of."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import mtplxd.daemon
import pytest
from mtplxd.config import settle_settings
from mtplxd.daemon import Daemon
from mtplxd.paths import Home
from mtplxd.platform.privacy import Privacy
from support.block_store import chain_of, offered_of
from support.daemon_process import short_folder
from support.waiting import until

WAIT_S = 30.0


@pytest.fixture
def home() -> Iterator[Home]:
    with short_folder() as folder:
        made = Home(folder)
        made.create()
        yield made


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    interval = sys.getswitchinterval()
    yield
    sys.setswitchinterval(interval)


def test_a_folder_that_went_and_was_made_again_is_closed_to_others(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def keep_private(folder: Path) -> Privacy:
        asked.append(folder)
        return Privacy(True, backups=False, search=True)

    monkeypatch.setattr(mtplxd.daemon, "keep_private", keep_private)

    async def scenario() -> None:
        daemon = Daemon(home, settle_settings(home, {"memory_budget": "1G"}))
        assert daemon.disk is not None
        shutil.rmtree(home.store)
        chain = chain_of(range(64))
        for _ in range(2):  # the first finds it gone
            daemon.disk.offer(offered_of(chain, 0))
            daemon.disk.flush(WAIT_S)
        daemon.disk.prune()  # whoever tidies by hand does not wait for the next try
        until(lambda: asked == [home.store])
        until(lambda: len(daemon.facts.degraded) == 1)
        assert "Time Machine copies it" in daemon.facts.degraded[0]
        assert daemon.disk.close(WAIT_S)

    asyncio.run(scenario())
