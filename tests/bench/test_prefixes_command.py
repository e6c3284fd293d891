"""The bench of shared beginnings runs on a small pack and writes what it should. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.tiny_pack import make_tiny_pack

BENCH = Path(__file__).parent / "prefixes.py"
LIMIT_S = 300


def test_reading_keeping_and_giving_back_are_timed(tmp_path: Path) -> None:
    pack = make_tiny_pack(tmp_path / "pack")
    options = ["--model", str(pack), "--tokens", "200", "--chunk", "64", "--prompts", "2"]
    command = [sys.executable, str(BENCH), *options, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "prefixes.json").read_text())
    assert list(found["samples"]) == ["prompt 1", "prompt 2"]
    assert found["restore_ms"] > 0
    assert 0 < found["keep_ms_a_chunk"] <= found["keep_ms_worst"]
    assert found["bytes"] > 200 * 4 * 2 * 2 * 16 * 4
