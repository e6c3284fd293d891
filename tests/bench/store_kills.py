"""Kills a process that hammers the store at random instants, and cuts the power at every moment of a recorded one.

    python tests/bench/store_kills.py --kills 300 --cuts 60

After each kill the store must open, every block verify, and every block that the process had acknowledged be there as
it was; the next process goes on in the same folder. For each cut a busy store is recorded and a share of the states
that a power cut may leave of it are opened. An interrupted run goes on where it stopped. It loads no model.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path

from harness import RESULTS, Journal, Sample, report
from mtplxd.errors import MtplxError
from mtplxd.store.disk import DiskStore
from mtplxd.store.limits import Limits
from mtplxd.store.shelf import Entry, Shelf
from support.block_store import WAIT_S, chain_of, content_of, offered_of, open_store, same
from support.power_cuts import judge, record, states_of

LIMITS = Limits(size=6 << 20, free_floor=0, hourly_writes=1 << 40, queue=4 << 20)
LINES = (0, 1, 2, 2, 20, 50, 100, 200)
"""What a process says before it is killed: nothing, that it begins, or what it acknowledged."""
LONGEST_S = 0.4
STATES = 300
SHARE = 0.02
CHATS = 12


def main() -> None:
    parser = argparse.ArgumentParser(description="kills a process that uses the store, and cuts its power")
    parser.add_argument("--kills", type=int, default=300, help="processes to kill")
    parser.add_argument("--cuts", type=int, default=60, help="busy stores to record")
    parser.add_argument("--states", type=int, default=STATES, help="states of each that are opened")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has found")
    parser.add_argument("--hammer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hammer:
        hammer(args.hammer, args.seed)
    else:
        run(args)


def run(args: argparse.Namespace) -> None:
    """All kills, then all cuts; fails where one found a fault."""
    del args.hammer, args.seed
    journal = Journal("store_kills", args)
    with tempfile.TemporaryDirectory(prefix="store-kills-") as folder:
        kills = [
            journal.take(f"kill {number}", lambda number=number: kill_one(Path(folder), number))  # type: ignore[misc]
            for number in range(args.kills)
        ]
        cuts = [
            journal.take(f"cut {number}", lambda number=number: cut_one(Path(folder), number, args.states))  # type: ignore[misc]
            for number in range(args.cuts)
        ]
    faults = [sample["fault"] for sample in (*kills, *cuts) if sample["fault"]]
    summary = {
        "kills": len(kills),
        "acknowledged_at_kills": sum(sample["acknowledged"] for sample in kills),
        "power_cut_states": sum(sample["states"] for sample in cuts),
        "faults": len(faults),
        "first_fault": faults[0] if faults else "none",
    }
    report(summary, journal.finish(summary), failed=bool(faults))


def kill_one(folder: Path, number: int) -> Sample:
    """Starts a process on the store, kills it at a random instant and looks at what it left."""
    draw = random.Random(number)
    command = [sys.executable, __file__, "--hammer", str(folder / "store"), "--seed", str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines: list[bytes] = []
        reading = threading.Thread(target=lambda out=process.stdout: lines.extend(out))  # type: ignore[misc]
        lines.extend(process.stdout.readline() for _ in range(draw.choice(LINES)))
        reading.start()
        time.sleep(draw.random() * LONGEST_S)
        process.send_signal(signal.SIGKILL)
        reading.join()
    kept: set[bytes] = set()
    for line in lines:
        if line.endswith(b"\n") and line[:1] in b"+-":
            (kept.add if line[:1] == b"+" else kept.discard)(bytes.fromhex(line[1:].decode()))
    wrong = "another block's numbers were read" if b"wrong\n" in lines else ""
    return {"acknowledged": len(kept), "fault": wrong or look(folder / "store", kept)}


def look(folder: Path, kept: set[bytes]) -> str:
    """What is wrong with a store in which these blocks were acknowledged; nothing where all is well."""
    store = open_store(folder, Limits(size=1 << 40, free_floor=0))
    try:
        counts = store.counts()
        if counts.state != "ready" or counts.quarantined:
            return f"opened {counts.state} ({counts.reason}) with {counts.quarantined} damaged"
        if lost := [name for name in kept if store.find(name) is None]:
            return f"{len(lost)} of {len(kept)} acknowledged blocks are lost: {store.why(lost[0])}"
        if store.verify().bad:
            return "a block does not verify"
        for entry in store._keeper.entries():
            loaded = store._load(entry)
            if isinstance(loaded, str) or not same(loaded[1], content_of(entry.name, loaded[1].nbytes - 8)):
                return "a block is not as it was made"
        if any(folder.rglob("*.tmp")):
            return "an unfinished file is left"
        return "something was left for pruning" if store.prune() else ""
    finally:
        store.close(WAIT_S)


def cut_one(folder: Path, number: int, states: int) -> Sample:
    """Records a busy store and opens states that a power cut may leave of it."""
    recorder = record(folder / "cut", rounds=40, seed=number)
    opened, fault = 0, ""
    for state in islice(states_of(recorder, random.Random(number), SHARE), states):
        opened += 1
        fault = fault or judge(state, folder / "cut")
    return {"calls": len(recorder.asked), "states": opened, "fault": fault}


def hammer(folder: Path, seed: int) -> None:
    """Uses the store with three threads and tidies it with a fourth until it is killed; tells what is acknowledged."""
    real_add, real_remove = Shelf.add, Shelf.remove

    def add(shelf: Shelf, entry: Entry) -> None:
        real_add(shelf, entry)
        os.write(1, b"+%s\n" % entry.name.hex().encode())

    def remove(shelf: Shelf, name: bytes, why: str) -> Entry | None:
        os.write(1, b"-%s\n" % name.hex().encode())
        return real_remove(shelf, name, why)

    Shelf.add, Shelf.remove = add, remove  # type: ignore[method-assign]
    os.write(1, b"ready\n")
    store = DiskStore(folder, LIMITS)
    for number in range(3):
        threading.Thread(target=chat, args=(store, random.Random(4 * seed + number)), daemon=True).start()
    tidy(store, random.Random(4 * seed + 3))


def chat(store: DiskStore, draw: random.Random) -> None:
    """Reads what is kept of a prompt and offers the rest, again and again."""
    while True:
        number = draw.randrange(CHATS)
        length = draw.randrange(8, 400)
        chain = chain_of(range(1000 * number, 1000 * number + length))
        whole = len(chain.nodes) - 1
        with store.holding(chain.nodes[1:]):
            for place in range(whole):
                name = chain.name(place)
                content = store.read(name, chain.span(place)) if store.find(name) else None
                if content is None:
                    store.offer(offered_of(chain, place, nbytes=16 * draw.randrange(1, 2000)))
                elif not same(content, content_of(name, content.nbytes - 8)):
                    os.write(1, b"wrong\n")
            if length % chain.block:
                store.offer(offered_of(chain, whole, length % chain.block, grade=draw.randrange(2)))


def tidy(store: DiskStore, draw: random.Random) -> None:
    """What is done by hand or while idle, now and then."""
    while True:
        store.flush(draw.random() * 0.3)
        turns = iter([True] * 3)
        chain = chain_of(range(1000 * draw.randrange(CHATS), 1000 * draw.randrange(1, CHATS + 1)))
        with contextlib.suppress(MtplxError):
            draw.choice(
                [
                    store.prune,
                    store.verify,
                    lambda turns=turns: store.recompress(lambda: next(turns, False)),
                    lambda chain=chain: store.discard(chain.nodes[2:3]),
                    store.clear if draw.random() < 0.05 else store.counts,
                ]
            )()


if __name__ == "__main__":
    main()
