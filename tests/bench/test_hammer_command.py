"""Seconds of hammering shared beginnings, acceptance of one prompt brought back, and one pair of crowds that write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.tiny_pack import make_tiny_pack

BENCH = Path(__file__).parent
LIMIT_S = 300


def run_bench(name: str, out: Path, *options: str) -> dict[str, Any]:
    """What it found; whether a figure was reached in so short a time is nobody's promise."""
    command = [sys.executable, str(BENCH / f"{name}.py"), "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (out / f"{name}.json").exists(), done.stdout + done.stderr
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    return found


def test_hammered_beginnings_give_no_wrong_text(tmp_path: Path) -> None:
    options = ("--minutes", "0.05", "--clients", "3", "--names", "mimo", "--families", "1")
    found = run_bench("hammer", tmp_path, *options)
    assert (found["wrong"], found["faults"], found["left_over"], found["bad_blocks"]) == ([], [], 0, 0)
    assert (found["exit"], found["stderr"], found["tracebacks"]) == (0, "", 0)
    assert {way.split(",")[0] for way in found["asked"]} == {"a", "b", "a again"}
    assert found["kept_share"] > 0.2
    assert found["mb_written"] > 0


def test_a_head_drafts_as_well_behind_a_prompt_that_was_brought_back(tmp_path: Path) -> None:
    found = run_bench(
        "restored_acceptance", tmp_path, "--prompts", "1", "--names", "mimo", "--max-tokens", "16"
    )
    assert found["passed"]
    [row] = found["rows"].values()
    assert row["cached_at_least"] == {"ram": 447, "disk": 447}
    assert row["acceptance"]["cold"] == row["acceptance"]["disk"]
    assert row["acceptance"]["cold"][0] > 0


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ({}, True),
        ({"accepted": [50, 30, 17]}, False),
        ({"cached": [447, 432]}, False),
        ({"texts": ["x", "z"]}, False),
    ],
)
def test_what_restored_acceptance_calls_the_same(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], passed: bool
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(sys, "path", list(sys.path))
    from restored_acceptance import judge

    cold = {"rounds": 100, "accepted": [50, 30, 20], "cached": [0, 0], "texts": ["x", "y"]}
    back = {**cold, "cached": [447, 447]}
    assert judge({"cold": cold, "ram": back, "disk": {**back, **change}}, 448)["passed"] is passed


def test_crowds_that_write_are_weighed_beside_crowds_that_do_not(tmp_path: Path) -> None:
    pack = make_tiny_pack(tmp_path / "tiny")
    small = (
        "--calm",
        "0.5",
        "--clients",
        "2",
        "--turns",
        "1",
        "--shortest",
        "80",
        "--longest",
        "120",
        "--max-tokens",
        "8",
    )
    found = run_bench("store_writes", tmp_path, "--model", str(pack), "--pairs", "1", *small)
    assert set(found["samples"]) == {"pair 0 on", "pair 0 off"}
    assert found["samples"]["pair 0 on"]["mb_in_all"] > 0
    on, off = (found["samples"][f"pair 0 {arm}"]["mb_in_all"] for arm in ("on", "off"))
    assert off < on / 4, "what others wrote may be packed meanwhile, nothing more"
    assert found["all_gaps"]["p99_ratio"] > 0
