"""Five kills of a busy store and the power cuts of a recorded one, through the command that does the full count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent / "store_kills.py"
LIMIT_S = 300


def test_kills_and_power_cuts_leave_a_store_that_is_whole(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(BENCH),
        "--kills",
        "5",
        "--cuts",
        "1",
        "--states",
        "40",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "store_kills.json").read_text())
    assert list(found["samples"]) == [*(f"kill {number}" for number in range(5)), "cut 0"]
    assert found["faults"] == 0
    assert found["acknowledged_at_kills"] > 0
    assert found["power_cut_states"] == 40
