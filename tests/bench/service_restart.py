"""Kills the daemon under launchd's stand-in, again and again, and times a session's next turn in the one that follows.

    MTPLXD_HOME=… python tests/bench/service_restart.py --kills 20

A life: the job's daemon answers turns of a session (the warm figure), is killed with kill -9, comes back by itself, and
loads its model, libraries included, and goes on with the session. Load and first token together must take at most the
load and three times the warm figure, and no two starts may be closer than ThrottleInterval. The job is the one that
`mtplx service install` writes, its times scaled by --factor. An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

from harness import RESULTS, Journal, Sample, find_pack, report
from mtplx_client import Client
from mtplx_client.errors import MtplxError
from mtplx_launchd.job import THROTTLE_S, describe_job
from mtplx_launchd.service import Service
from mtplxd.config import resolve_settings
from mtplxd.paths import Home
from support.daemon_process import short_folder
from support.standin.rig import Rig, standing_in

TIMES = 3.0
WARM_TURNS, SESSION = 3, "work"
TURN = "Tell me one more thing about the river, and why it matters to those who live beside it."
FIRST = "Let us talk about a river and all that lives in it. " * 30


class World:
    """One machine with the job installed on one home."""

    def __init__(self, rig: Rig, home: Home, model: str) -> None:
        self._rig, self._home, self._model = rig, home, model
        job = describe_job(home, resolve_settings(home, {}, {}), sys.executable, {})
        Service(home, rig.launchd).install(job)
        with self._client() as client:
            client.wait_ready(120)
            self._ask(client, FIRST)

    def life(self) -> Sample:
        """Warm turns, a kill, and the next turn in another process; seconds."""
        with self._client() as client:
            warm = [self._ask(client, TURN) for _ in range(WARM_TURNS)]
            pid = client.status().pid
        os.kill(pid, signal.SIGKILL)
        self._await_another(pid)
        with self._client() as client:
            began = time.monotonic()
            client.load(self._model, force=True)
            load = time.monotonic() - began
            resumed = load + self._ask(client, TURN)
        return {"warm_s": statistics.median(warm), "load_s": load, "resumed_s": resumed}

    def gaps(self) -> list[float]:
        """Seconds between one start and the next."""
        return [later["at"] - before["at"] for before, later in pairwise(self._rig.starts())]

    def _ask(self, client: Client, text: str) -> float:
        """Seconds until the first token of a turn, loading and all that is in the way included."""
        began = time.monotonic()
        first = 0.0
        options = {"max_tokens": 8, "ignore_eos": True, "temperature": 0.0, "session": SESSION, "force": True}
        for event in client.generate(text, model=self._model, **options):
            if not first and getattr(event, "text", ""):
                first = time.monotonic() - began
        return first or time.monotonic() - began

    def _await_another(self, pid: int) -> None:
        while True:
            try:
                with self._client() as client:
                    if client.wait_ready(120).pid != pid:
                        return
            except MtplxError:
                time.sleep(0.01)

    def _client(self) -> Client:
        return Client(self._home.socket)


def judge(samples: list[Sample]) -> Sample:
    """Medians, the worst share of what is allowed, and whether all kept to it."""
    shares = [s["resumed_s"] / (TIMES * s["warm_s"] + s["load_s"]) for s in samples]
    middle = {name: statistics.median(s[name] for s in samples) for name in ("warm_s", "load_s", "resumed_s")}
    return {
        **middle,
        "kills": len(samples),
        "worst_share_of_allowed": max(shares),
        "smallest_gap_over_throttle": min(s["gap_over_throttle"] for s in samples),
        "ok": max(shares) <= 1.0 and all(s["gap_over_throttle"] >= 1.0 for s in samples),
    }


def run(args: argparse.Namespace) -> None:
    """All kills; fails where one was too slow or too soon."""
    journal = Journal("service_restart", args)
    with short_folder() as folder, standing_in(folder / "m", args.factor, 1.0) as rig:
        home = Home(folder / "home")
        home.create()
        home.config_file.write_text('store_free_floor = "0"\n')
        pack = find_pack(args.model)
        shutil.copytree(pack.path, home.packs / pack.name)
        world = World(rig, home, pack.name)
        throttle = THROTTLE_S * args.factor

        def life() -> Sample:
            sample = world.life()
            return {**sample, "gap_over_throttle": world.gaps()[-1] / throttle}

        samples = []
        for kill in range(args.kills):
            samples.append(journal.take(f"kill {kill}", partial(life)))
            print(f"kill {kill}: {samples[-1]}", flush=True)
    summary = judge(samples)
    report(summary, journal.finish(summary), failed=not summary["ok"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description="restarts of the daemon as a job, and the next turn of a session"
    )
    parser.add_argument("--model", default="smollm2-135m", help="pack name or folder")
    parser.add_argument("--kills", type=int, default=20, help="how often")
    parser.add_argument("--factor", type=float, default=0.1, help="of the job's times, 1 = as launchd would")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
