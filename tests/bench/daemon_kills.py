"""Kills a daemon at random instants under load, starts it again on the same home, and looks at what it left.

    python tests/bench/daemon_kills.py --kills 300

Several clients ask models of the zoo for prompts with beginnings in common, go on with sessions and tidy; half of the
time the store is too small for all of it. After each kill every block must verify, everything acknowledged must be
there, and prompts and sessions must be answered as by a daemon that keeps nothing; some daemons are killed while they
start. An interrupted run goes on where it stopped, on a new home.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from cold_texts import Texts, collect, copy_pack, load, restore
from harness import RESULTS, Journal, Sample, report
from kill_load import Book, start_load
from kill_looks import Acknowledged, files_in, look, whole_blocks, witness
from mtplx_client import Client
from mtplx_client.errors import MtplxError
from support.daemon_process import DaemonProcess, short_folder

BLOCK = 16
TABLE = {"each": 6, "conversations": 4}
STRETCH = 5
"""Kills in a row with room for everything, then as many without."""
ROOM, LITTLE = "8G", "12M"
LONGEST_S, START_S = 1.2, 1.5
AT_START = 0.15
"""The share of kills before which another daemon is killed while it starts."""
REPORT_S = 0.05


class World:
    """A home, the daemon that runs on it, and what was acknowledged to anybody."""

    def __init__(self, home: Path, clients: int) -> None:
        self.home, self.book, self._clients = home, Book(), clients
        self._daemon: DaemonProcess | None = None
        self._had = Acknowledged()
        self._seen: set[Path] = set()
        self._whole: set[Path] = set()
        self._tracebacks = 0
        home.mkdir(mode=0o700)
        settings = f'store = "on"\nstore_free_floor = "0"\nstore_block = {BLOCK}\nprefix_cache = "24M"\n'
        (home / "config.toml").write_text(settings, encoding="utf-8")

    def kill(self, number: int, texts: Texts, next_texts: Texts) -> Sample:
        """One life's end: load on the daemon that runs, its kill, the next one's start, and what that has."""
        draw = random.Random(f"kill {number}")
        roomy, next_roomy = ((at // STRETCH) % 2 == 0 for at in (number, number + 1))
        try:
            fault = "" if self._daemon else self._start(roomy, texts)
            if not fault:
                fault = self._burden(number, texts, draw, roomy=roomy)
            self.close()
            had, killed = self._had, 1
            if draw.random() < AT_START:
                self._begin(next_roomy)
                time.sleep(draw.random() * START_S)
                self._end()
                killed += 1
            had.whole = roomy and next_roomy
            fault = fault or self._start(next_roomy, next_texts)
            kept = had if texts is next_texts else _without_witness(had)
            fault = fault or self._look(next_texts, kept, draw)
        except MtplxError as error:
            self.close()
            return self._sample(killed=1, fault=f"{type(error).__name__}: {error}")
        sample = self._sample(killed=killed, fault=fault or self._read_log())
        if sample["fault"]:
            self.close()
        sample |= {"acknowledged_blocks": len(had.blocks), "evicts": not had.whole}
        return {**sample, "witness_tokens": had.witness_tokens}

    def _sample(self, *, killed: int, fault: str) -> Sample:
        faults = [*self.book.faults, *([fault] if fault else [])]
        answers, self.book.answers, self.book.faults = self.book.answers, 0, []
        turns = sum(one.turns for one in self.book.sessions.values())
        return {"killed": killed, "answers": answers, "turns": turns, "fault": "; ".join(faults)}

    def close(self) -> None:
        """Ends the daemon if one runs."""
        if self._daemon is not None:
            self._end()

    @property
    def _socket(self) -> Path:
        return self.home / "run" / "mtplxd.sock"

    def _begin(self, roomy: bool) -> None:
        """Starts a daemon and does not wait for it."""
        size = ROOM if roomy else LITTLE
        self._daemon = DaemonProcess(self.home, MTPLXD_STORE_SIZE=size)
        self._daemon.spawn()

    def _end(self) -> None:
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon = None

    def _start(self, roomy: bool, texts: Texts) -> str:
        self._begin(roomy)
        assert self._daemon is not None
        self._daemon.await_ready()
        if not self._daemon.ready_line.startswith("ready "):
            said = self._daemon.wait()
            self._daemon = None
            return f"the daemon does not start: {said}"
        with Client(socket=self._socket) as client:
            load(client, texts.pack)
        return ""

    def _burden(self, number: int, texts: Texts, draw: random.Random, *, roomy: bool) -> str:
        """Has a prompt kept, then all clients ask until the daemon is killed; notes what was acknowledged."""
        had = self._had = Acknowledged()
        with Client(socket=self._socket) as client:
            if roomy:
                had.witness, had.witness_tokens, fault = witness(client, self.home, texts, draw, BLOCK)
                if fault:
                    return fault
            over, removes = threading.Event(), not roomy
            threads = start_load(
                self._socket, texts, self.book, self._clients, str(number), over, removes=removes
            )
            try:
                self._report(client, draw.random() * LONGEST_S)
            finally:
                over.set()
                self._end()
                for thread in threads:
                    thread.join()
        return ""

    def _report(self, client: Client, seconds: float) -> None:
        """Notes for so long which blocks are counted; tails may go at any time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            files = files_in(self.home)
            if client.cache_stats().blocks:
                fresh = files - self._seen
                self._seen |= fresh
                self._whole |= whole_blocks(fresh)
                self._had.blocks = files & self._whole
            time.sleep(min(REPORT_S, left))

    def _look(self, texts: Texts, had: Acknowledged, draw: random.Random) -> str:
        with Client(socket=self._socket) as client:
            return look(client, self.home, texts, self.book, had, draw)

    def _read_log(self) -> str:
        """The first traceback that is new in the log."""
        found = DaemonProcess(self.home).log().split("Traceback")[1:]
        fresh = found[self._tracebacks :]
        self._tracebacks = max(self._tracebacks, len(found))
        return "a traceback is in the log: " + fresh[0][:2000] if fresh else ""


def _without_witness(had: Acknowledged) -> Acknowledged:
    return Acknowledged(blocks=had.blocks, whole=had.whole)


def summarise(samples: list[Sample]) -> dict[str, Any]:
    """Sums over all kills, and the first fault."""
    faults = [f"kill {at}: {sample['fault']}" for at, sample in enumerate(samples) if sample["fault"]]
    return {
        "kills": sum(sample["killed"] for sample in samples),
        "answers": sum(sample["answers"] for sample in samples),
        "acknowledged_blocks": sum(sample.get("acknowledged_blocks", 0) for sample in samples),
        "with_eviction": sum(bool(sample.get("evicts")) for sample in samples),
        "faults": len(faults),
        "first_fault": faults[0] if faults else "none",
    }


def run(args: argparse.Namespace) -> None:
    """All kills; fails where one found a fault."""
    journal = Journal("daemon_kills", args)
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, short_folder() as place:
        tables = [
            restore(
                pack,
                journal.take(f"cold {pack.name}", partial(collect, pack, args.families, **TABLE)),
                args.families,
                **TABLE,
            )
            for pack in (copy_pack(name, Path(folder)) for name in args.names.split(","))
        ]
        world = World(place / "home", args.clients)
        # a model has a whole stretch, so that what one life keeps the next one looks for
        of = [tables[(at // (2 * STRETCH)) % len(tables)] for at in range(args.kills + 1)]
        try:
            for number in range(args.kills):
                begin, known = time.monotonic(), journal.has(f"kill {number}")
                sample = journal.take(
                    f"kill {number}", partial(world.kill, number, of[number], of[number + 1])
                )
                samples.append(sample)
                if not known:
                    print(f"kill {number} ({time.monotonic() - begin:.1f} s): {sample}", flush=True)
        finally:
            world.close()
    summary = summarise(samples)
    report(summary, journal.finish(summary), failed=bool(summary["faults"]))


def main() -> None:
    parser = argparse.ArgumentParser(description="kills a daemon under load, and looks at what it left")
    parser.add_argument("--kills", type=int, default=300, help="how often")
    parser.add_argument("--clients", type=int, default=4, help="clients at a time")
    parser.add_argument("--families", type=int, default=4, help="beginnings that prompts share, of each")
    parser.add_argument("--names", default="qwen3_5,mimo,glm4_moe_lite", help="checkpoints of the zoo")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has found")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
