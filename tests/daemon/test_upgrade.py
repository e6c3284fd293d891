"""A home that an earlier version left serves this one: sessions, blocks, tuning records and settings are all there."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from mtplx_client import Client
from mtplxd.errors import FailedPrecondition
from mtplxd.paths import Home
from mtplxd.store.session_file import VERSION
from mtplxd.store.sessions import Sessions
from mtplxd.tune.records import TuningFile
from support.daemon_process import DaemonProcess, running_daemon
from support.old_home import HOMES, RECORD, SAID, SESSION, ask, unpack

VERSIONS = sorted(path.stem for path in HOMES.glob("*.zip"))
COMPUTES_ALIKE = sys.platform == "linux"
"""Blocks of a home are of the number format that its machine computed in."""
COMPUTED_BY = {"0.1.0": "Device(cpu, 0) mlx 0.32.4 OpenBLAS 0.3.21 SkylakeX 2 form 1"}
"""The name of what computed each home's blocks, which are nobody else's."""
V1 = Path(__file__).parents[1] / "data" / "sessions_v1.sql"


def served_as(version: str, home: Path) -> AbstractContextManager[DaemonProcess]:
    """A daemon for the home of a version, on a machine that computes as the one did which the home is from."""
    return running_daemon(home, module=("support.computing_as", COMPUTED_BY[version]))


def test_there_is_a_home_of_a_released_version() -> None:
    assert "0.1.0" in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_computed_and_said_before_an_update_is_there_after_it(
    home: Path, tiny: Path, version: str
) -> None:
    before = unpack(version, home)
    with served_as(version, home) as daemon, Client(daemon.socket) as client:
        reply = ask(client, tiny)
        assert reply.usage.prompt_tokens == before["prompt_tokens"]
        if COMPUTES_ALIKE:
            assert reply.usage.cached_tokens == reply.usage.prompt_tokens - 1
            assert list(reply.tokens) == before["tokens"]
        shown = client.session(SESSION)
        assert [message.content for message in shown.messages] == [SAID, before["said"]]
        settings = {setting.key: (setting.value, setting.source) for setting in client.status().settings}
        assert settings["keep_alive"] == ("10m", "config")
    assert TuningFile(home / "tuning.json").read("tuned", "a-key") == RECORD


@pytest.mark.skipif(not COMPUTES_ALIKE, reason="its blocks were computed in another number format")
def test_an_index_of_another_version_is_made_again_from_the_files(home: Path, tiny: Path) -> None:
    unpack("0.1.0", home)
    [index] = [path for path in (home / "store").glob("*.db") if path.name != "sessions.db"]
    with sqlite3.connect(index) as file:
        file.execute("PRAGMA user_version = 99")
    with served_as("0.1.0", home) as daemon, Client(daemon.socket) as client:
        reply = ask(client, tiny)
    assert reply.usage.cached_tokens == reply.usage.prompt_tokens - 1


def test_sessions_of_the_first_version_are_brought_to_this_one(home: Path) -> None:
    place = Home(home)
    place.create()
    with sqlite3.connect(place.sessions_file) as file:
        file.executescript(V1.read_text())
    with running_daemon(home) as daemon, Client(daemon.socket) as client:
        names = [session.name for session in client.sessions()]
    assert names
    with sqlite3.connect(place.sessions_file) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_sessions_of_a_later_version_are_left_alone_and_said(home: Path) -> None:
    unpack("0.1.0", home)
    path = Home(home).sessions_file
    with sqlite3.connect(path) as file:
        file.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(FailedPrecondition, match="newer mtplxd"):
        Sessions(path).summaries()
    assert path.read_bytes() == before


def test_what_a_later_version_put_beside_the_tuning_records_stays(home: Path) -> None:
    unpack("0.1.0", home)
    path = home / "tuning.json"
    path.write_text(path.read_text().rstrip().removesuffix("}") + ', "of the future": {"a": 1}}')
    file = TuningFile(path)
    assert file.write("tuned", "another", {"depth": 1})
    assert file.read("tuned", "a-key") == RECORD
    assert '"of the future"' in path.read_text()
