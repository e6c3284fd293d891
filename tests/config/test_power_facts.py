"""What a machine runs on, as macOS and Linux tell it."""

from __future__ import annotations

import pytest
from mtplxd.platform.machine import System
from mtplxd.platform.power import Battery, parse_batt, read_battery

ON_BATTERY = """Now drawing from 'Battery Power'
 -InternalBattery-0 (id=4587619)	27%; discharging; 1:58 remaining present: true
"""
CHARGING = """Now drawing from 'AC Power'
 -InternalBattery-0 (id=4587619)	27%; charging; 1:02 remaining present: true
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ON_BATTERY, Battery(True, 27)),
        (CHARGING, Battery(False, 27)),
        ("Now drawing from 'AC Power'\n", Battery()),
        ("", Battery()),
        (ON_BATTERY.replace("27%", "100%"), Battery(True, 100)),
    ],
)
def test_macos_says_it_in_words(text: str, found: Battery) -> None:
    assert parse_batt(text) == found
    asked: list[list[str]] = []

    def run(command: list[str]) -> str:
        asked.append(command)
        return text

    assert read_battery(System("darwin", run, lambda _: "")) == found
    assert asked == [["pmset", "-g", "batt"]]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"BAT0/capacity": "27\n", "BAT0/status": "Discharging\n"}, Battery(True, 27)),
        ({"BAT0/capacity": "27\n", "BAT0/status": "Charging\n"}, Battery(False, 27)),
        ({"BAT1/capacity": "90\n", "BAT1/status": "Discharging\n"}, Battery(True, 90)),
        ({"BAT0/capacity": "unknown\n"}, Battery()),
        ({}, Battery()),
    ],
)
def test_linux_says_it_in_files(files: dict[str, str], found: Battery) -> None:
    def read(path: str) -> str:
        return files.get(path.removeprefix("/sys/class/power_supply/"), "")

    assert read_battery(System("linux", lambda _: "", read)) == found


def test_this_machine_can_be_asked() -> None:
    found = read_battery()
    assert found.percent is None or 0 <= found.percent <= 100
