"""Some load/unload cycles of a real daemon through the command that does the full count, and what it calls grown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent
LIMIT_S = 300


def run(name: str, *options: str) -> None:
    command = [sys.executable, str(BENCH / name), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_cycle_leaves_no_model_and_every_request_is_answered(tmp_path: Path) -> None:
    run("cycles.py", "--cycles", "3", "--requests", "2", "--names", "mimo", "--out", str(tmp_path))
    found = json.loads((tmp_path / "cycles.json").read_text())
    assert (found["cycles"], found["texts"], found["left"]) == (3, 6, 0)
    assert (found["exit"], found["tracebacks"]) == (0, 0)
    assert all(sample["rss"] > 0 for sample in found["samples"].values())


@pytest.mark.parametrize(("grown", "drift"), [(1.0, 0.0), (1.2, 0.2)])
def test_the_last_hundred_cycles_are_held_against_the_first(grown: float, drift: float) -> None:
    from cycles import weigh

    sizes = [100e6] * 100 + [150e6] * 100 + [100e6 * grown] * 100
    found = weigh([{"rss": size, "loaded": size} for size in sizes])
    assert found["rss_drift"] == pytest.approx(drift)
    assert found["rss_mb"] == [100.0, 150.0, round(100 * grown, 1)]


def test_a_part_that_is_not_whole_is_no_part() -> None:
    from cycles import weigh

    found = weigh([{"rss": 1e6, "loaded": 1e6}] * 100 + [{"rss": 9e6, "loaded": 9e6}] * 50)
    assert found["rss_drift"] == 0.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("0:03.25", 3.25), ("01:02:03", 3723.0), ("2-00:00:01", 172801.0), ("12:00", 720.0)]
)
def test_times_of_the_system_are_read(text: str, seconds: float) -> None:
    from sizes import parse_cpu_time

    assert parse_cpu_time(text) == seconds


def test_this_process_has_a_size_and_has_been_on_a_core() -> None:
    from sizes import core_seconds, resident_bytes

    assert resident_bytes(os.getpid()) > 1 << 20
    before = core_seconds(os.getpid())
    while core_seconds(os.getpid()) == before:  # until the count moves
        sum(range(10_000))


def test_an_idle_daemon_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    import idle

    monkeypatch.setattr(idle.time, "sleep", lambda _: None)
    found = idle.watch(os.getpid(), 60.0)
    assert found["s"] < 60
    assert found["core_s"] >= 0
    assert found["rss"] > 0
