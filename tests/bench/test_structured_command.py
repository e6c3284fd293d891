"""The bench of structures runs on a small pack and writes what it should. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.tiny_pack import make_tiny_pack

LIMIT_S = 300


def test_structures_are_weighed_with_drafts_masked_and_not(tmp_path: Path) -> None:
    pack = make_tiny_pack(tmp_path / "tiny")
    command = [sys.executable, str(Path(__file__).parent / "structured.py"), "--model", str(pack)]
    options = ["--out", str(tmp_path), "--prompts", "1", "--max-tokens", "12"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "structured.json").read_text())
    assert found["place"]["mlx"]
    for structure in ("json_schema", "regex"):
        for variant in ("masked", "unmasked"):
            summary = found[structure][variant]
            assert 1 <= summary["tokens_per_round"] <= 4
            assert 1 <= summary["tokens_per_round_sampled"] <= 4
            assert summary["host_ms"] > 0
            assert summary["share_of_round"] < 1
