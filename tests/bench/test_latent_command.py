"""The bench of latent attention runs, and its ratios are of what it measured. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

LIMIT_S = 300


def test_short_forwards_are_timed_both_ways(tmp_path: Path) -> None:
    script = Path(__file__).parent / "latent.py"
    options = ("--slots", "64", "--repeats", "2", "--out", str(tmp_path))
    done = subprocess.run(
        [sys.executable, str(script), *options], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "latent.json").read_text())
    assert len(found["samples"]) == 2
    times = {
        name: median(sample[name] for sample in found["samples"].values())
        for name in ("mlx_lm_1", "mlx_lm_4", "ours_1", "ours_4")
    }
    assert found["speedup_4"] == pytest.approx(times["mlx_lm_4"] / times["ours_4"])
    assert found["of_a_step_4"] == pytest.approx(times["ours_4"] / times["mlx_lm_1"])
    assert found["of_our_step_4"] == pytest.approx(times["ours_4"] / times["ours_1"])
    assert 0 < found["largest_difference"] < 1e-5
    assert found["place"]["mlx"]
