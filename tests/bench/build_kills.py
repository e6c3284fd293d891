"""Kills builds at random instants, takes each up again, and compares what it makes with a build that nobody killed.

    python tests/bench/build_kills.py --kills 100
    python tests/bench/build_kills.py --kills 100 --model qwen3_5

Without a model the steps are ones that need none, so that an instant is as likely within a step's record and its rename
as within its work; with one of the zoo the real daemon builds it. Killed are the daemon, its worker, or both. The pack
must be the same byte for byte, its contract equal but for times, run and measured rows, and no finished step may run
twice. An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from build_lives import DaemonLife, DriverLife, Life
from build_looks import finished_steps, look_at_end, look_at_kill, read_pack_files
from harness import RESULTS, Journal, Sample, report
from mtplxd.forge.pipeline import ORDER
from mtplxd.forge.runs import Run
from support.daemon_process import short_folder

TARGETS = ("both", "both", "daemon", "worker")
MOST_KILLS = 3
"""Of one build."""
POLL_S, LIMIT_S = 0.005, 600.0


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=100, help="builds to kill, each up to three times")
    parser.add_argument(
        "--model", default="", help="a model of the zoo, built for real (default: quick steps)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    args = parser.parse_args()
    journal = Journal(f"build_kills_{args.model}" if args.model else "build_kills", args)
    with tempfile.TemporaryDirectory() as folder:
        source = prepare(Path(folder), args.model)
        with short_folder() as home:
            began = time.monotonic()
            reference = _whole(begin(home, source, args.model))
            took_s = time.monotonic() - began
        samples = [
            journal.take(
                f"kill {number}",
                lambda number=number: kill_one(number, source, args.model, reference, took_s),
            )
            for number in range(args.kills)
        ]
    faults = [sample["fault"] for sample in samples if sample["fault"]]
    at = [place for sample in samples for place in sample["at"]]
    summary = {
        "builds": len(samples),
        "kills": len(at),
        "kills_by_step": {step: at.count(step) for step in ("", *ORDER) if at.count(step)},
        "faults": len(faults),
        "first_fault": faults[0] if faults else "",
        "unkilled_build_s": took_s,
    }
    report(summary, journal.finish(summary), failed=bool(faults))


def prepare(folder: Path, model: str) -> Path:
    """The source that every build has."""
    from support.fake_forge import ZOO, make_source

    if not model:
        return make_source(folder / "source")
    return shutil.copytree(ZOO / model, folder / model, ignore=shutil.ignore_patterns("expected.json"))


def begin(home: Path, source: Path, model: str) -> Life:
    """A build that has not begun, in an empty home."""
    return DaemonLife(home, source) if model else DriverLife(home, source)


def kill_one(number: int, source: Path, model: str, reference: dict[str, Any], took_s: float) -> Sample:
    """One build: killed, taken up, maybe killed again, and in the end compared."""
    draw = random.Random(f"build {number}")
    at: list[str] = []
    finished: dict[str, int] = {}
    fault = ""
    with short_folder() as home:
        life = begin(home, source, model)
        try:
            for _ in range(draw.randint(1, MOST_KILLS)):
                life.start()
                _await(life.run, draw.choice(ORDER), draw.random() ** 2 * took_s / len(ORDER), life)
                life.kill(draw.choice(TARGETS))
                fault = fault or look_at_kill(home, life.run, finished)
                finished = finished_steps(life.run)
                at.append(life.standing())
            verdict = life.finish()
            fault = fault or look_at_end(home, life.run, verdict, finished, reference)
        finally:
            life.close()
    return {"at": at, "fault": fault}


def _whole(life: Life) -> dict[str, Any]:
    """What a build makes that nobody kills."""
    try:
        verdict = life.finish()
        assert verdict == "depth_wins", f"a build that nobody kills ends with {verdict}"
        return read_pack_files(life.home / "packs" / "mine")
    finally:
        life.close()


def _await(run: Run, step: str, delay_s: float, life: Life) -> None:
    """Until a step has begun, or the build has ended, and some time after."""
    end = time.monotonic() + LIMIT_S
    while life.alive and time.monotonic() < end:
        if step in run.state().steps:
            break
        time.sleep(POLL_S)
    time.sleep(delay_s)


if __name__ == "__main__":
    main()
