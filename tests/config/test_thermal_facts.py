"""What macOS and Linux say of heat, read from their own words; where nothing is said nothing is claimed."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
from mtplxd.platform.machine import System
from mtplxd.platform.process_info import read_thermal_state
from mtplxd.platform.thermal import ORDER, hotter, parse_thermal, read_pressure, read_thermal
from support.fake_smc import compiled

NOTHING = (
    "Note: No thermal warning level has been recorded\nNote: No performance warning level has been recorded\n"
)
SLOWED = "CPU_Scheduler_Limit \t= 100\nCPU_Available_CPUs \t= 8\nCPU_Speed_Limit \t= 72\n"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (NOTHING, "nominal"),
        ("CPU_Scheduler_Limit \t= 100\nCPU_Available_CPUs \t= 8\nCPU_Speed_Limit \t= 100\n", "nominal"),
        (SLOWED, "limited"),
        ("Thermal warning level: 2\n", "limited"),
        ("Thermal warning level: 0\n", "nominal"),
        ("", "unknown"),
    ],
)
def test_the_state_is_what_pmset_says(text: str, state: str) -> None:
    assert parse_thermal(text) == state


@pytest.mark.parametrize(
    ("told", "pmset", "state"),
    [
        ("nominal", NOTHING, "nominal"),
        ("nominal", SLOWED, "limited"),
        ("", SLOWED, "limited"),
        ("", "", "unknown"),
        ("serious", "", "serious"),
        ("critical", NOTHING, "critical"),
    ],
)
def test_a_mac_is_as_hot_as_the_worse_of_its_two_words(told: str, pmset: str, state: str) -> None:
    system = System("darwin", lambda command: pmset if command[1:] == ["-g", "therm"] else "", lambda _: "")
    assert read_thermal(system, lambda: told) == state
    assert read_pressure(system, lambda: told) == (told or "unknown")


def zones(*found: dict[str, str]) -> System:
    files = {
        f"/sys/class/thermal/thermal_zone{number}/{name}": text
        for number, zone in enumerate(found)
        for name, text in {"type": "x86_pkg_temp\n", **zone}.items()
    }
    return System("linux", lambda _: "", lambda path: files.get(path, ""))


def trips(heat: int, **limits: int) -> dict[str, str]:
    found = {"temp": f"{heat}\n"}
    for number, (kind, limit) in enumerate(limits.items()):
        found |= {f"trip_point_{number}_type": f"{kind}\n", f"trip_point_{number}_temp": f"{limit}\n"}
    return found


@pytest.mark.parametrize(
    ("system", "state"),
    [
        (zones(), "unknown"),
        (zones({"temp": ""}), "unknown"),
        (zones(trips(45_000)), "nominal"),
        (zones(trips(45_000, passive=95_000, critical=105_000)), "nominal"),
        (zones(trips(95_000, passive=95_000, critical=105_000)), "serious"),
        (zones(trips(70_000, active=60_000, passive=95_000)), "fair"),
        (zones(trips(110_000, passive=95_000, critical=105_000)), "critical"),
        (zones(trips(45_000, passive=95_000), trips(96_000, hot=96_000)), "serious"),
        (zones(trips(45_000, passive=0, critical=-274_000)), "nominal"),
        (zones(trips(-5_000, passive=95_000)), "nominal"),
    ],
)
def test_linux_is_as_hot_as_its_hottest_zone(system: System, state: str) -> None:
    assert read_thermal(system) == state


def test_the_worse_of_two_states() -> None:
    for low, high in pairwise(ORDER):
        assert hotter(low, high) == hotter(high, low) == high


@pytest.mark.parametrize(
    ("answer", "state"),
    [("0", "nominal"), ("1", "fair"), ("2", "serious"), ("3", "critical"), ("4", ""), ("-1", ""), (None, "")],
)
def test_a_process_hears_of_heat_through_the_runtimes_own_calls(answer: str | None, state: str) -> None:
    library = str(compiled("objc"))
    code = "import sys; from mtplxd.platform.process_info import read_thermal_state as read; "
    code += "print(read(sys.argv[1], sys.argv[1]))"
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    if answer is not None:
        environment["FAKE_THERMAL_STATE"] = answer
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, library],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert done.stdout.strip() == state


def test_nothing_is_claimed_where_there_is_no_runtime() -> None:
    assert read_thermal_state("/nowhere/objc", "/nowhere/Foundation") == ""


def test_this_machine_can_be_asked() -> None:
    assert read_thermal() in ORDER
