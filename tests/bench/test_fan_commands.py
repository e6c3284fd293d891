"""A kill and a thousand lines as the commands make them that do the full counts, and what they call a fault."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from mtplxd.thermal.helper import Helper
from support.daemon_process import short_folder
from support.fake_smc import FakeSmc
from support.fand import Fand
from support.waiting import until

BENCH = Path(__file__).parent
LIMIT_S = 300


def test_a_thousand_lines_move_no_fan(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "fan_fuzz.py"), "--lines", "1000", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "fan_fuzz.json").read_text())
    assert (found["lines"], found["faults"], found["fan_writes"]) == (1000, 0, 0)
    assert found["answers"] > 100


def test_a_helper_that_is_killed_is_started_again_and_fans_come_back() -> None:
    from fan_kills import reads_automatic, wait_automatic
    from fan_supervisor import Supervisor

    with short_folder() as folder:
        smc = FakeSmc(folder / "state")
        supervisor = Supervisor(Fand(folder / "fand", smc), delay_s=0.2)
        client = Helper(folder / "fand" / "fand.sock")
        client.hold(20)
        until(lambda: smc.held)
        assert not reads_automatic(smc)
        wait_automatic(smc, supervisor.kill())
        assert smc.automatic
        assert supervisor.deaths
        supervisor.close()
        client.close()


@pytest.mark.parametrize(("took", "fault"), [(2.9, ""), (3.1, "automatic after 3.10 s, 3 s are allowed")])
def test_fans_that_come_back_too_late_are_a_fault(tmp_path: Path, took: float, fault: str) -> None:
    from fan_kills import World, summarise

    args = argparse.Namespace(lease_s=1.0, restart_s=0.5)
    sample = World(tmp_path, args)._judge(FakeSmc(tmp_path / "state"), "helper", "auto", True, took)
    assert sample["fault"] == fault
    found = summarise([{**sample, "tries": 1}], args)
    assert (found["faults"], found["slowest_s"]) == (int(bool(fault)), took)


def test_no_line_that_is_made_takes_a_lease_and_many_come_near() -> None:
    from fan_fuzz import make_line, takes_lease

    draw = random.Random(7)
    lines = [make_line(draw) for _ in range(3000)]
    assert not any(takes_lease(part) for line in lines for part in line.split(b"\n"))
    assert sum(line.startswith(b"fan/1 hold") for line in lines) > 100
    assert takes_lease(b"fan/1 hold 10")
