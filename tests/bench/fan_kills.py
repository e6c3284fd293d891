"""Kills the daemon, the fan helper or both at random instants while fans are held, and looks when fans are back.

    python tests/bench/fan_kills.py --kills 200

A real daemon in each mode, the helper's one file under a supervisor that starts it again after `--restart-s`, and the
real calls into IOKit on each generation of Apple silicon; half of the time the hardware refuses writes or says yes and
does nothing. Fans must read automatic within the longer of lease and restart and 2 s more, every time. An interrupted
run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import RESULTS, Journal, Sample, report, run
from mtplx_client import Client
from mtplx_client.errors import MtplxError
from mtplxd.errors import Internal
from mtplxd.thermal.fand.smc import Smc
from mtplxd.thermal.fand.smc_fans import SmcFans
from support.daemon_process import DaemonProcess
from support.fake_smc import M1, M3, M4, M5, FakeSmc
from support.fand import Fand

from fan_supervisor import Supervisor  # isort: skip

SPARE_S = 2.0
WHO = ("daemon", "helper", "both", "helper twice")
MODES = ("auto", "smart", "max")
LONGEST_S = 1.5
"""From the moment fans are asked for to the kill, at most: while they are unlocked, taken, or held."""
POLL_S = 0.005
GIVE_UP_S = 30.0
STOOD_STILL_S = 0.4
"""A wait of `POLL_S` that took so long: nothing here ran meanwhile, and a run that was too slow then is made again."""
MOST_TRIES = 5


class World:
    """A daemon and a helper at one socket; the daemon lives on while nobody kills it."""

    def __init__(self, home: Path, args: argparse.Namespace) -> None:
        self._home, self._args = home, args
        self._daemon: DaemonProcess | None = None

    def kill(self, number: int) -> Sample:
        """The sample of one run; made again where the machine stood still and it was too slow."""
        tries, sample = 1, self._kill(number)
        while sample["fault"] and sample.get("stood_still_s", 0.0) > STOOD_STILL_S and tries < MOST_TRIES:
            tries, sample = tries + 1, self._kill(number)
        return sample | {"tries": tries}

    def _kill(self, number: int) -> Sample:
        """One run: fans asked for, somebody killed, fans looked at."""
        draw = random.Random(f"fans {number}")
        who, mode = WHO[number % len(WHO)], MODES[number // len(WHO) % len(MODES)]
        smc = self._hardware(number, draw)
        supervisor = Supervisor(Fand(self._home / "fand", smc), self._args.restart_s)
        try:
            with self._client() as client:
                client.set_fans(mode)
                stream = client.hold_fans("a kill")
                next(stream)
                time.sleep(draw.random() * LONGEST_S)
                held = smc.held
                last = self._strike(who, supervisor, draw)
                took, still = wait_automatic(smc, last)
                sample = self._judge(smc, who, mode, held, took) | {"stood_still_s": round(still, 2)}
        except MtplxError as error:
            self.close()
            sample = {"fault": f"{type(error).__name__}: {error}"}
        finally:
            supervisor.close()
        return sample | {"generation": smc.get("generation"), "lies": smc.get("lie_percent")}

    def close(self) -> None:
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon = None

    def _hardware(self, number: int, draw: random.Random) -> FakeSmc:
        """A controller of its own for each run; half of them lie or refuse."""
        folder = self._home / "smc"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        generation = draw.choice((M1, M3, M4, M5))
        bad = draw.random() < 0.5
        return FakeSmc(
            folder / "state",
            generation,
            seed=number + 1,
            unlock_ms=draw.choice((100, 600)),
            refuse_percent=draw.choice((0, 20)) if bad else 0,
            lie_percent=draw.choice((10, 30)) if bad else 0,
        )

    def _client(self) -> Client:
        if self._daemon is None:
            socket = self._home / "fand" / "fand.sock"
            settings = {"MTPLXD_FAN_SOCKET": str(socket), "MTPLXD_FAN_LEASE": str(self._args.lease_s)}
            self._daemon = DaemonProcess(self._home, MTPLXD_STORE="off", **settings).start()
            if not self._daemon.ready_line.startswith("ready "):
                said, self._daemon = self._daemon.wait(), None
                raise Internal("the daemon does not start", said)
        return Client(socket=self._daemon.socket)

    def _strike(self, who: str, supervisor: Supervisor, draw: random.Random) -> float:
        """Kills; the moment of the last death."""
        last = 0.0
        if who in ("daemon", "both"):
            self.close()
            last = time.monotonic()
        if who == "both":
            time.sleep(draw.random() * 0.2)
        if who != "daemon":
            last = supervisor.kill()
        if who == "helper twice":  # the second one while it starts, or soon after
            time.sleep(self._args.restart_s + draw.random() * 0.4)
            last = supervisor.kill()
        return last

    def _judge(self, smc: FakeSmc, who: str, mode: str, held: bool, took: float) -> Sample:
        bound = max(self._args.lease_s, self._args.restart_s) + SPARE_S
        fault = "" if took <= bound else f"automatic after {took:.2f} s, {bound:g} s are allowed"
        if not fault and who in ("daemon", "both") and not reads_automatic(smc):
            fault = "the file says automatic, the calls do not"
        return {"who": who, "mode": mode, "held": held, "took_s": round(took, 3), "fault": fault}


def wait_automatic(smc: FakeSmc, since: float) -> tuple[float, float]:
    """Seconds from `since` until fans read automatic, and the longest that a short wait took; `GIVE_UP_S` where they
    never do.
    """
    still, before = 0.0, time.monotonic()
    while not smc.automatic:
        if before - since > GIVE_UP_S:
            return GIVE_UP_S, still
        time.sleep(POLL_S)
        still, before = max(still, time.monotonic() - before), time.monotonic()
    return time.monotonic() - since, still


def reads_automatic(smc: FakeSmc) -> bool:
    """The same through the calls that the helper makes, in this process."""
    copy = smc.path.with_name("iokit.so")
    copy.write_bytes(smc.library.read_bytes())
    os.environ.update(smc.environment)
    return SmcFans(Smc(str(copy))).read().automatic


def summarise(samples: list[Sample], args: argparse.Namespace) -> dict[str, Any]:
    faults = [sample["fault"] for sample in samples if sample["fault"]]
    times = [sample["took_s"] for sample in samples if "took_s" in sample]
    return {
        "kills": len(samples),
        "faults": len(faults),
        "first_fault": faults[0] if faults else "none",
        "bound_s": max(args.lease_s, args.restart_s) + SPARE_S,
        "slowest_s": max(times, default=0.0),
        "median_s": statistics.median(times) if times else 0.0,
        "made_again": sum(sample["tries"] - 1 for sample in samples),
        "held_when_killed": sum(bool(sample.get("held")) for sample in samples),
        "by_who": {
            who: max((s["took_s"] for s in samples if s.get("who") == who), default=0.0) for who in WHO
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how many runs")
    parser.add_argument("--lease-s", type=float, default=1.0, help="the daemon's lease")
    parser.add_argument("--restart-s", type=float, default=1.0, help="until a dead helper is started again")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    args = parser.parse_args()
    journal, samples = Journal("fan_kills", args), list[Sample]()
    home = Path(tempfile.mkdtemp(prefix="mtplx-", dir="/tmp"))
    world = World(home, args)
    try:
        for number in range(args.kills):
            samples.append(journal.take(f"kill {number}", lambda at=number: world.kill(at)))
            if samples[-1]["fault"]:
                print(f"kill {number}: {samples[-1]['fault']}", file=sys.stderr)
    finally:
        world.close()
        shutil.rmtree(home, ignore_errors=True)
    summary = summarise(samples, args)
    report(summary, journal.finish(summary), failed=bool(summary["faults"]))


if __name__ == "__main__":
    run(main)
