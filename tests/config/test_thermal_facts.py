"""What macOS says of heat, read from its own words; elsewhere nothing is claimed."""

from __future__ import annotations

import sys

import pytest
from mtplxd.platform.thermal import parse_thermal, read_thermal


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (
            "Note: No thermal warning level has been recorded\nNote: No performance warning level has been recorded\n",
            "nominal",
        ),
        ("CPU_Scheduler_Limit \t= 100\nCPU_Available_CPUs \t= 8\nCPU_Speed_Limit \t= 100\n", "nominal"),
        ("CPU_Scheduler_Limit \t= 100\nCPU_Available_CPUs \t= 8\nCPU_Speed_Limit \t= 72\n", "limited"),
        ("Thermal warning level: 2\n", "limited"),
        ("Thermal warning level: 0\n", "nominal"),
        ("", "unknown"),
    ],
)
def test_the_state_is_what_pmset_says(text: str, state: str) -> None:
    assert parse_thermal(text) == state


def test_nothing_is_claimed_where_the_system_says_nothing() -> None:
    assert read_thermal() in (("nominal", "limited", "unknown") if sys.platform == "darwin" else ("unknown",))
