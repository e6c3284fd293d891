"""Measures what a daemon that nobody asks takes of a core, with a model in memory.

    python tests/bench/idle.py --minutes 10

The seconds that all of its threads were on a core, by the system's own count, over the time that passed; with
`--threads` also which of them woke how often (Linux).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from cold_texts import copy_pack, load
from harness import RESULTS, Journal, Sample, report, run
from mtplx_client import Client
from sizes import core_seconds, resident_bytes
from support.daemon_process import running_daemon, short_folder
from support.zoo import NAMES

MOST = 0.003
"""Of a core."""
SETTLE_S = 5.0
"""What was asked before may take as long to be written down."""
PIECE_S = 60.0


def watch(pid: int, seconds: float) -> Sample:
    """Seconds on a core, and of the clock, of a piece of the time."""
    spent, begun = core_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return {"core_s": core_seconds(pid) - spent, "s": time.monotonic() - begun, "rss": resident_bytes(pid)}


def read_wakes(pid: int) -> dict[str, int]:
    """How often each thread of a process went to sleep so far; empty where the system does not tell."""
    wakes: dict[str, int] = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        lines = (task / "status").read_text().splitlines()
        name = next(line.split(None, 1)[1] for line in lines if line.startswith("Name:"))
        count = next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))
        wakes[f"{name} {task.name}"] = count
    return wakes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--name", default=NAMES[0], help="model of the zoo")
    parser.add_argument("--threads", action="store_true", help="print the wakes of each thread")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    args = parser.parse_args()
    args.fresh = True
    journal = Journal("idle", args)
    pieces: list[Sample] = []
    with short_folder() as folder:
        pack = copy_pack(args.name, folder)
        with running_daemon(folder / "home", MTPLXD_STORE_FREE_FLOOR="0") as daemon:
            with Client(socket=daemon.socket) as client:
                load(client, pack)
                client.complete("Why?", model=str(pack), force=True, max_tokens=8, timeout=600)
            time.sleep(SETTLE_S)
            before, left = read_wakes(daemon.pid), 60 * args.minutes
            while left > 0:
                piece = min(PIECE_S, left)
                pieces.append(journal.take(f"{len(pieces)}", lambda piece=piece: watch(daemon.pid, piece)))
                left -= PIECE_S
            wakes = {name: count - before.get(name, 0) for name, count in read_wakes(daemon.pid).items()}
            daemon.stop()
    seconds = sum(piece["s"] for piece in pieces)
    summary: dict[str, Any] = {
        "minutes": seconds / 60,
        "share_of_a_core": sum(piece["core_s"] for piece in pieces) / seconds,
        "wakes_per_s": sum(wakes.values()) / seconds,
    }
    if args.threads:
        for name, count in sorted(wakes.items(), key=lambda one: -one[1])[:10]:
            print(f"{name}: {count / seconds:.2f} wakes/s")
    summary["passed"] = summary["share_of_a_core"] <= MOST
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
