"""Loads and unloads models of the zoo over and over, with requests in between: the daemon must keep its size.

    python tests/bench/cycles.py --cycles 1000 --requests 10

Every cycle brings one model into memory, asks it for some short texts (prompts nobody asked before, plain and drafted,
greedy and drawn, one of them cancelled), and takes it out again; then the daemon's resident size is read. The middle of
the last hundred cycles' sizes is held against the first hundred's. What is known of blocks on disk grows with them, to
a bound of its own; the store is small here, so that it is full within the first cycles. One process must live through
all of them, so that an interrupted run begins anew; what it had measured by then lies in the journal.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from statistics import median
from typing import Any

from cold_texts import copy_pack
from harness import RESULTS, Journal, Sample, report, run
from mtplx_client import Client
from mtplx_client.events import Text
from mtplxd.errors import FailedPrecondition, MtplxError
from sizes import resident_bytes
from support.daemon_process import DaemonProcess, running_daemon, short_folder
from support.zoo import NAMES

PART = 100
"""Cycles whose sizes are taken together."""
FLAT = 0.05
VOCAB, LONGEST, SHORTEST = 200, 160, 8
WORDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0, "depth": 2},
    {"temperature": 0.0, "depth": 0},
    {"temperature": 0.8, "depth": 1, "top_p": 0.95},
    {"temperature": 0.8, "depth": 2, "seed": 7},
    {"temperature": 0.0, "depth": "auto"},
    {"temperature": 0.7, "depth": 1, "reproducible": True},
)
PATIENCE_S = 600.0
TELL_EVERY = 50


class Cycler:
    """One daemon, and what is asked of it; a cycle's prompts follow from its number."""

    def __init__(self, daemon: DaemonProcess, packs: list[Path], max_tokens: int) -> None:
        self._daemon, self._packs, self._max_tokens = daemon, packs, max_tokens

    def take(self, number: int, requests: int) -> Sample:
        """One model in, so many requests, the model out; sizes before and after, and how many texts came."""
        pack = str(self._packs[number % len(self._packs)])
        draw = random.Random(f"cycle {number}")
        with Client(socket=self._daemon.socket) as client:
            client.load(pack, force=True, depth_max=2, timeout=PATIENCE_S)
            made = [self._ask(client, pack, draw, at) for at in range(requests)]
            full = resident_bytes(self._daemon.pid)
            unloaded(client, pack)
            left = len(client.ps())
        return {
            "rss": resident_bytes(self._daemon.pid),
            "loaded": full,
            "texts": sum(made),
            "left": left,
        }

    def _ask(self, client: Client, pack: str, draw: random.Random, at: int) -> bool:
        """Whether a text came; the last of ten is left in the middle."""
        words = WORDS[draw.randrange(len(WORDS))]
        ids = [draw.randrange(VOCAB) for _ in range(draw.randint(SHORTEST, LONGEST))]
        options = {**words, "model": pack, "force": True, "tokens": ids, "max_tokens": self._max_tokens}
        heard = False
        for event in client.generate(timeout=PATIENCE_S, **options):
            heard = heard or (isinstance(event, Text) and bool(event.tokens))
            if heard and at % 10 == 9:
                break
        return heard


def unloaded(client: Client, pack: str) -> None:
    """Takes a model out as soon as nobody uses it: one that was asked and left is used for a round more."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.unload(pack, timeout=PATIENCE_S)
        except FailedPrecondition:
            if time.monotonic() >= end:
                raise
            time.sleep(0.01)
        else:
            return


def weigh(samples: list[Sample], part: int = PART) -> dict[str, Any]:
    """How the size went: the middle of each part, and the last one's over the first one's."""
    parts = [samples[begin : begin + part] for begin in range(0, len(samples), part)]
    whole = [one for one in parts if len(one) == min(part, len(samples))]
    middles = [median(sample["rss"] for sample in one) for one in whole]
    loaded = [median(sample["loaded"] for sample in one) for one in whole]
    return {
        "rss_mb": [round(size / 1e6, 1) for size in middles],
        "loaded_mb": [round(size / 1e6, 1) for size in loaded],
        "rss_drift": middles[-1] / middles[0] - 1.0,
        "loaded_drift": loaded[-1] / loaded[0] - 1.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=10, help="of each cycle")
    parser.add_argument("--max-tokens", type=int, default=12)
    parser.add_argument("--names", default=",".join(NAMES), help="models of the zoo, in turn")
    parser.add_argument("--store", default="on", help="what the daemon has to do with the disk")
    parser.add_argument("--store-size", default="4M", help="how much it may keep there")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    args = parser.parse_args()
    args.fresh = True
    journal = Journal("cycles", args)
    samples: list[Sample] = []
    with short_folder() as folder:
        packs = [copy_pack(name, folder) for name in args.names.split(",")]
        options = {
            "MTPLXD_STORE": args.store,
            "MTPLXD_STORE_SIZE": args.store_size,
            "MTPLXD_STORE_FREE_FLOOR": "0",
        }
        with running_daemon(folder / "home", **options) as daemon:
            cycler = Cycler(daemon, packs, args.max_tokens)
            for number in range(args.cycles):
                try:
                    sample = journal.take(f"{number}", lambda at=number: cycler.take(at, args.requests))
                except MtplxError:
                    print(daemon.log()[-2000:], flush=True)  # its home goes with this command
                    raise
                samples.append(sample)
                if (number + 1) % TELL_EVERY == 0:
                    print(f"{number + 1} cycles, {samples[-1]['rss'] / 1e6:.1f} MB", flush=True)
            code, _, said = daemon.stop()
            tracebacks = daemon.log().count("Traceback")
    summary: dict[str, Any] = {
        "cycles": len(samples),
        "requests": args.requests * len(samples),
        "texts": sum(sample["texts"] for sample in samples),
        "left": sum(sample["left"] for sample in samples),
        **weigh(samples),
        "exit": code,
        "stderr": said[-500:],
        "tracebacks": tracebacks,
    }
    flat = abs(summary["rss_drift"]) <= FLAT and abs(summary["loaded_drift"]) <= FLAT
    clean = not (code or said or tracebacks or summary["left"])
    summary["passed"] = flat and clean and summary["texts"] == summary["requests"]
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
