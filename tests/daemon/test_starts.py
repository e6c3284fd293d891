"""Starts that crash: told apart from good ends and from reboots, kept, and after three of them nothing is preloaded."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from mtplx_client import Client
from mtplxd import __version__
from mtplxd.config import resolve_settings, set_value, settle_settings
from mtplxd.errors import InvalidArgument
from mtplxd.paths import Home
from mtplxd.platform.boot import boot_id
from mtplxd.starts import Record, Start, Starts, add_crash, is_looping, keep_failure, read_record
from support.daemon_process import running_daemon

START = Start(pid=7, version="0.1.0", boot="b", began=1000.0, ready=1001.0)


@pytest.fixture
def place(home: Path) -> Home:
    made = Home(home)
    made.create()
    return made


@pytest.mark.parametrize(
    ("crashes", "now", "looping"),
    [((), 300, False), ((100, 200), 300, False), ((0, 100, 200), 300, True), ((0, 100, 200), 301, False),
     ((400, 401, 402), 300, False)],
)  # fmt: skip
def test_three_crashes_within_five_minutes_are_a_loop(
    crashes: tuple[float, ...], now: float, looping: bool
) -> None:
    assert is_looping(crashes, now) is looping


def test_a_start_without_an_end_was_a_crash() -> None:
    assert add_crash(Record(START, (900.0,)), "b", 1100.0) == (900.0, 1100.0)


@pytest.mark.parametrize(
    "last", [None, replace(START, ended_well=1050.0), replace(START, boot="before the reboot")]
)
def test_a_good_end_and_a_reboot_are_none(last: Start | None) -> None:
    assert add_crash(Record(last, (900.0,)), "b", 1100.0) == (900.0,)


def test_crashes_of_long_ago_are_forgotten() -> None:
    assert add_crash(Record(START, (1.0,)), "b", 1100.0) == (1100.0,)


def test_the_fourth_start_says_that_nothing_is_preloaded_and_a_good_end_heals(place: Home) -> None:
    now = [1000.0]
    for crash in range(3):
        starts = Starts(place, lambda: now[0])
        assert starts.begin(crash, "0.1.0", "b") == ""
        starts.ready()
        now[0] += 40
    starts = Starts(place, lambda: now[0])
    assert starts.begin(4, "0.1.0", "b").startswith("nothing is preloaded: 3 crashes within 5 minutes")
    starts.end_well()
    now[0] += 300
    assert Starts(place, lambda: now[0]).begin(5, "0.1.0", "b") == ""


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"last": {"pid": 1}, "crashes": []}', '{"last": null, "crashes": 3}']
)
def test_a_record_that_makes_no_sense_is_none(place: Home, text: str) -> None:
    (place.run / "starts.json").write_text(text)
    assert read_record(place) == Record()
    assert Starts(place).begin(1, "0.1.0", "b") == ""


def test_what_a_failed_start_left_is_kept_until_the_next_failure(place: Home) -> None:
    (place.logs / "mtplxd.err").write_text("error: the disk is gone\n")
    (place.logs / "mtplxd.log").write_text("".join(f"line {at}\n" for at in range(100)))
    first = Starts(place)
    first.begin(7, "0.1.0", "b")
    Starts(place).begin(8, "0.1.0", "b")
    kept = (place.logs / "last-failure.log").read_text()
    assert "pid 7" in kept
    assert "did not come up" in kept
    assert "the disk is gone" in kept
    assert "line 99" in kept
    assert "line 59" not in kept
    assert (place.logs / "last-failure.log").stat().st_mode & 0o077 == 0
    keep_failure(place, "another")
    assert "pid 7" not in (place.logs / "last-failure.log").read_text()


def test_a_daemon_that_crashed_three_times_comes_up_without_its_models_and_says_why(home: Path) -> None:
    place = Home(home)
    place.create()
    set_value(place, "preload", "nowhere")
    crashed = Start(1, __version__, boot_id(), began=1.0, ready=2.0)
    import time

    now = time.time()
    record = {"last": vars(crashed), "crashes": [now, now]}
    (place.run / "starts.json").write_text(json.dumps(record))
    with running_daemon(home) as daemon:
        with Client(daemon.socket) as client:
            degraded = client.wait_ready().degraded
        assert any("3 crashes within 5 minutes" in reason for reason in degraded)
        assert not any("nowhere" in reason for reason in degraded)
        assert "3 crashes within 5 minutes" in daemon.log()
        assert daemon.stop()[0] == 0
    last = read_record(place).last
    assert last is not None
    assert last.ended_well > 0


def test_the_setting_is_preloaded_and_a_kill_is_found_out_by_the_next_start(home: Path) -> None:
    Home(home).create()
    (home / "config.toml").write_text('preload = ["nowhere"]\n')
    with running_daemon(home) as daemon:
        with Client(daemon.socket) as client:
            while not any("preload of nowhere" in reason for reason in client.status().degraded):
                pass
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait()
    assert Starts(Home(home)).begin(1, "0.1.0", boot_id()) == ""
    assert "died while it served" in (home / "logs" / "last-failure.log").read_text()


@pytest.mark.parametrize(
    ("written", "names"),
    [('preload = ["a", "org/b"]', ("a", "org/b")), ('preload = "a, org/b"', ("a", "org/b")), ("preload = []", ()),
     ("", ()), ('preload = "none"', ())],
)  # fmt: skip
def test_models_to_preload_are_a_list(place: Home, written: str, names: tuple[str, ...]) -> None:
    place.config_file.write_text(written)
    assert resolve_settings(place, {}, {}).preload == names


@pytest.mark.parametrize("written", ['preload = "a,,b"', "preload = [1]", "preload = 3.5e"])
def test_what_is_no_list_of_names_is_refused(place: Home, written: str) -> None:
    place.config_file.write_text(written)
    with pytest.raises(InvalidArgument):
        resolve_settings(place, {}, {})


def test_one_bad_value_does_not_keep_a_daemon_from_starting(place: Home) -> None:
    place.config_file.write_text('keep_alive = "soon"\nmax_rows = 3\n')
    settings = settle_settings(place, {}, {})
    assert (settings.keep_alive, settings.max_rows) == (-1.0, 3)
    assert any("keep_alive" in warning and "default is in force" in warning for warning in settings.warnings)


@pytest.mark.parametrize("written", ['store = "of"', 'socket = "ssh://far"', "no toml"])
def test_where_it_serves_and_what_it_keeps_is_never_guessed(place: Home, written: str) -> None:
    place.config_file.write_text(f"{written}\n")
    with pytest.raises(InvalidArgument):
        settle_settings(place, {}, {})


def test_a_bad_flag_is_refused(place: Home) -> None:
    with pytest.raises(InvalidArgument, match="drain-s"):
        settle_settings(place, {"drain_s": "soon"}, {})
