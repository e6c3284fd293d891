"""The rollback bench runs on a small hybrid and writes what it should. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent / "rollback.py"
LIMIT_S = 300


def test_every_count_of_kept_positions_is_timed_with_one_forward_a_round(tmp_path: Path) -> None:
    options = ["--hidden", "128", "--layers", "4", "--rounds", "2", "--depth", "2", "--out", str(tmp_path)]
    command = [sys.executable, str(BENCH), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "rollback.json").read_text())
    assert list(found["samples"]) == ["kept 1", "kept 2", "kept 3"]
    assert found["forwards_a_round"] == 1
    assert 0 < found["share"] <= found["worst_share"] < 1
    assert found["place"]["mlx"]
