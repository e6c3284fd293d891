"""A fine-tuning that died goes on to the same bytes, wherever it died; never with other settings or another head."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.forge.pacing import Pace
from mtplxd.forge.training import WORK
from support.cut_short import cut_short
from support.fine_tunings import settle, tune


class Died(Exception):
    pass


def pace_until(stage: str, done: int) -> Pace:
    def tell(at: str, step: int, *_: object) -> None:
        if (at, step) == (stage, done):
            raise Died

    return Pace(tell)


def files_of(run: Path) -> dict[str, bytes]:
    names = ("mtp.safetensors", "training.json", "checkpoint.safetensors", "curve.json")
    return {name: (run / WORK / name).read_bytes() for name in names}


@pytest.mark.parametrize("method", ["lora"])
def test_a_run_that_died_goes_on_to_the_same_bytes(method: str, tmp_path: Path) -> None:
    pack, tuning = cut_short("mimo", tmp_path / "pack"), settle(method, steps=6)
    assert tune(pack, tmp_path / "whole", tuning).passed
    for stage, done in (("data", 1), ("train", 1), ("measure", 2), ("train", 5), ("measure", 6)):
        with pytest.raises(Died):
            tune(pack, tmp_path / "died", tuning, pace_until(stage, done))
    tune(pack, tmp_path / "died", tuning)
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "died")


def test_a_run_is_not_continued_with_other_settings_or_another_head(tmp_path: Path) -> None:
    pack, other = cut_short("mimo", tmp_path / "pack"), cut_short("mimo", tmp_path / "other", noise=0.4)
    with pytest.raises(Died):
        tune(pack, tmp_path / "run", settle(), pace_until("data", 1))
    with pytest.raises(FailedPrecondition, match="other settings"):
        tune(pack, tmp_path / "run", settle(steps=5))
    with pytest.raises(FailedPrecondition, match="other settings"):
        tune(other, tmp_path / "run", settle())


CHILD = """
import sys
from pathlib import Path
from mtplxd.forge.pacing import Pace
from support.fine_tunings import settle, tune
tune(Path(sys.argv[1]), Path(sys.argv[2]), settle(steps=6), Pace(lambda *told: print(*told, flush=True)))
"""


def test_kill_9_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    pack = cut_short("mimo", tmp_path / "pack")
    command = [sys.executable, "-c", CHILD, str(pack), str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for line_of_death in ("data 1 ", "train 4 "):
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith(line_of_death):
                break
        child.send_signal(signal.SIGKILL)
        child.communicate()
    told: list[tuple[str, int]] = []
    resumed = tune(
        pack, tmp_path / "run", settle(steps=6), Pace(lambda stage, done, *_: told.append((stage, done)))
    )
    assert resumed.passed
    assert told[0][0] == "data" or told[0] == ("train", 3)
    assert tune(pack, tmp_path / "whole", settle(steps=6)) == resumed
