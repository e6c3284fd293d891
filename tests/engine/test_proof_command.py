"""The command of the full proof runs, goes on where it was interrupted, and fails when the law does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COMMAND = Path(__file__).parents[1] / "bench" / "proof_engine.py"
OPTIONS = ["--part", "texts", "--depths", "1", "--mixes", "top_k and top_p"]


def prove(out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(COMMAND), "--out", str(out), *OPTIONS]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_the_command_proves_the_cases_it_was_asked_for(tmp_path: Path) -> None:
    done = prove(tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "proof_engine.json").read_text())
    assert len(found["samples"]) == 6
    assert found["rows"] > 100
    assert 0 < found["largest_distance_float64"] < 1e-12
    assert found["failed"] == []


def test_the_command_goes_on_from_its_journal_and_fails_for_a_distance_beyond_its_bound(
    tmp_path: Path,
) -> None:
    settings = {"depths": "1", "mixes": "top_k and top_p"}
    key = "top_k and top_p, depth 1, reduced draft vocabulary, fixed lengths, float64"
    known = {"distance": 0.5, "rows": 7, "seconds": 0.0}
    lines = [json.dumps(settings), json.dumps([key, known])]
    (tmp_path / "proof_engine.partial.jsonl").write_text("\n".join(lines) + "\n")
    assert prove(tmp_path).returncode == 1
    found = json.loads((tmp_path / "proof_engine.json").read_text())
    assert found["samples"][key] == known
    assert found["failed"] == [key]
