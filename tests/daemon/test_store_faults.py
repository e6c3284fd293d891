"""Whatever becomes of a real daemon's store, a prompt is answered as it was before, and status says what is wrong.

Nothing of prompts is kept in memory here, so that all that comes back comes from the disk.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.events import Reply
from support.daemon_process import DaemonProcess, running_daemon, short_folder
from support.waiting import until

SETTINGS = {"MTPLXD_STORE_FREE_FLOOR": "0", "MTPLXD_STORE_BLOCK": "16", "MTPLXD_PREFIX_CACHE": "0"}


class Life:
    """One daemon, its store's folder, and what it is asked."""

    def __init__(self, daemon: DaemonProcess, client: Client, model: Path) -> None:
        self.client, self.store, self._model = client, daemon.home / "store", model

    def ask(self, prompt: str) -> Reply:
        settings: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, "depth": 2}
        return self.client.complete(prompt, model=str(self._model), force=True, raw=True, **settings)

    def files(self) -> set[Path]:
        return {*(self.store / "blocks").rglob("*.blk")}

    def keep(self, prompt: str) -> tuple[Reply, set[Path]]:
        """A prompt's answer when nothing is known of it, and its files once all of them are there."""
        before = self.files()
        cold = self.ask(prompt)
        assert cold.usage.cached_tokens == 0
        self.settle(cold, before)
        return cold, self.files() - before

    def settle(self, cold: Reply, before: set[Path]) -> None:
        text = cold.usage.prompt_tokens + cold.usage.completion_tokens - 1
        until(
            lambda: len(self.files() - before) >= 2 * (text // 16) and not self.client.cache_stats().waiting
        )

    def recovers(self) -> None:
        """What is asked is kept again, sooner or later."""
        before = self.files()
        until(lambda: self.ask(text_of(random.random())).tokens and self.files() - before)
        until(lambda: not self.client.status().store.reason)

    def reasons(self) -> dict[str, int]:
        return {reason.name: reason.count for reason in self.client.cache_stats().unread_reasons}


def got_back(reply: Reply) -> bool:
    """Whether all whole blocks of its prompt came back."""
    return reply.usage.cached_tokens >= (reply.usage.prompt_tokens - 1) // 16 * 16 > 0


def text_of(seed: float) -> str:
    draw = random.Random(seed)
    return " ".join("".join(draw.choices("abcdefghij", k=4)) for _ in range(24))


@contextmanager
def unwritable(folder: Path, *, at_start: bool = False) -> Iterator[None]:
    """As on a read-only volume: by its modes, which a daemon that starts sets right; for root by what not even root may
    change."""
    if os.geteuid() and not at_start:
        modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
        for path in modes:
            path.chmod(0o500 if path.is_dir() else 0o400)
        try:
            yield
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
        return
    change = ["chattr", "-R", "+i", str(folder)]
    if shutil.which("chattr") is None or subprocess.run(change, capture_output=True, check=False).returncode:
        pytest.skip("nothing here keeps the daemon from writing")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-R", "-i", str(folder)], check=True)


@contextmanager
def living(home: Path, tiny: Path, **settings: str) -> Iterator[Life]:
    with running_daemon(home, **{**SETTINGS, **settings}) as daemon, Client(socket=daemon.socket) as client:
        yield Life(daemon, client, tiny)
        assert daemon.stop()[0] == 0
        assert "Traceback" not in daemon.log()


@pytest.fixture(scope="module")
def life(tiny: Path) -> Iterator[Life]:
    with short_folder() as folder, living(folder / "home", tiny) as life:
        yield life


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 0x10
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_damaged_block_is_computed_again(life: Life, damage: Callable[[Path], None]) -> None:
    prompt = text_of(hash(damage.__name__) % 1000)
    cold, files = life.keep(prompt)
    quarantined = life.client.cache_stats().quarantined
    for path in files:
        damage(path)
    again = life.ask(prompt)
    assert again.tokens == cold.tokens
    assert not got_back(again)
    assert life.reasons()["quarantined"] > 0
    assert life.client.cache_stats().quarantined > quarantined
    until(lambda: got_back(life.ask(prompt)))
    assert life.ask(prompt).tokens == cold.tokens
    life.client.cache_verify()
    assert life.client.cache_verify().bad == 0


@pytest.mark.parametrize("what", ["blocks", ""])
def test_a_folder_that_was_deleted_is_made_again(life: Life, what: str) -> None:
    prompt = text_of(len(what) + 7)
    cold, _ = life.keep(prompt)
    shutil.rmtree(life.store / what)
    assert life.ask(prompt).tokens == cold.tokens
    assert life.reasons()["lost"] > 0
    life.recovers()
    assert life.ask(prompt).tokens == cold.tokens


def test_an_index_that_was_deleted_is_missed_by_nobody(life: Life) -> None:
    prompt = text_of(21)
    cold, _ = life.keep(prompt)
    for path in life.store.glob("index.db*"):
        path.unlink()
    assert life.ask(prompt).tokens == cold.tokens
    life.recovers()
    assert got_back(life.ask(prompt))


def test_a_folder_that_cannot_be_written_is_read(life: Life) -> None:
    prompt, other = text_of(31), text_of(32)
    cold, _ = life.keep(prompt)
    with unwritable(life.store):
        fresh = life.ask(other)
        until(lambda: life.client.status().store.state == "degraded")
        assert "not kept" in life.client.status().store.reason
        assert life.client.cache_stats().reason == life.client.status().store.reason
        again = life.ask(prompt)
        assert again.tokens == cold.tokens
        assert got_back(again)
        assert life.ask(other).tokens == fresh.tokens
    life.recovers()


def test_the_next_daemon_answers_the_same_whatever_happened_to_the_folder_between(tiny: Path) -> None:
    """No index, then no room, then no right to write: each serves what is there."""
    with short_folder() as folder:
        home = folder / "home"
        with living(home, tiny) as life:
            cold, _ = life.keep(text_of(41))
        (home / "store" / "index.db").unlink()
        with living(home, tiny, MTPLXD_STORE_FREE_FLOOR="8000000G") as life:
            again, fresh = life.ask(text_of(41)), life.ask(text_of(42))
            assert again.tokens == cold.tokens
            assert got_back(again)
            more = count(
                43
            )  # what is asked for while the store is still opening is not refused for want of room
            until(lambda: life.ask(text_of(next(more))) and life.client.status().store.state == "paused")
            assert "free space" in life.client.status().store.reason
            assert "low disk" in {reason.name for reason in life.client.cache_stats().drop_reasons}
            assert life.ask(text_of(42)).tokens == fresh.tokens
        with unwritable(home / "store", at_start=True), living(home, tiny) as life:
            until(lambda: life.client.status().store.blocks > 0)
            again = life.ask(text_of(41))
            assert again.tokens == cold.tokens
            assert got_back(again)
            assert life.client.status().store.state == "degraded"
