"""Sends the fan helper random and mutated lines over its socket, and looks that it lives and moved no fan.

    python tests/bench/fan_fuzz.py --lines 200000

The helper is its one installed file, the hardware the stand-in behind IOKit. Lines are random bytes, requests with
bytes changed, cut, doubled or joined, and other versions, many to a write, on connections that come and go in the
middle of a line. What would be a valid lease is left out, so that every write to a fan is a fault. An interrupted run
goes on where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from harness import RESULTS, Journal, Sample, report, run
from mtplxd.thermal.fand.protocol import BadLine, parse
from mtplxd.thermal.helper import Helper, HelperGone
from support.fake_smc import FakeSmc
from support.fand import Fand
from support.waiting import until

SEEDS = (
    b"fan/1 status", b"fan/1 hold 10", b"fan/1 release", b"fan/2 hold 10", b"fan/1 hold 31", b"fan/1 hold 1e9",
    b"fan/1 hold -1", b"fan/1 hold nan", b"GET / HTTP/1.1", b'{"v":1,"verb":"hold","seconds":10}', b"max", b"",
)  # fmt: skip
CHUNK = 2000
MOST_KIB = 40 * 1024
PIECE = 4
"""Lines in one write, at most."""


def make_line(draw: random.Random) -> bytes:
    """One line without its end; never one that takes a lease."""
    while True:
        line = (
            mutate(draw, draw.choice(SEEDS)) if draw.random() < 0.8 else draw.randbytes(draw.randrange(200))
        )
        if not any(takes_lease(part) for part in line.split(b"\n")):
            return line


def mutate(draw: random.Random, line: bytes) -> bytes:
    """A request with some of it changed."""
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(line) + 1)
        line = draw.choice(
            (
                line[:at] + draw.randbytes(1) + line[at:],
                line[:at] + line[at + 1 :],
                line[:at] + draw.randbytes(1) + line[at + 1 :],
                line[:at],
                line + line[:at],
                line + b" " + draw.choice(SEEDS),
                line.upper(),
                line * draw.randrange(1, 20),
            )
        )
    return line


def takes_lease(line: bytes) -> bool:
    try:
        return parse(line).verb == "hold"
    except BadLine:
        return False


class Target:
    """A helper whose fans nobody may move."""

    def __init__(self, folder: Path) -> None:
        self.smc = FakeSmc(folder / "smc")
        self.helper = Fand(folder / "run", self.smc).start()

    def send(self, number: int, count: int) -> Sample:
        """So many lines on as many connections as the helper makes them; what it is like after."""
        draw = random.Random(f"lines {number}")
        sent, answers, connections = 0, 0, 0
        while sent < count:
            said, heard = self._talk(draw, count - sent)
            sent, answers, connections = sent + said, answers + heard, connections + 1
        return {"lines": sent, "answers": answers, "connections": connections, "fault": self._look()}

    def _talk(self, draw: random.Random, most: int) -> tuple[int, int]:
        """One connection, left in the middle of a line now and then; how many lines it said and answers it heard."""
        said, heard = 0, b""
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.settimeout(10)
            connection.connect(str(self.helper.socket))
            for _ in range(draw.randrange(1, 4)):
                lines = [make_line(draw) for _ in range(min(draw.randrange(1, PIECE), most - said))]
                said += len(lines)
                ended = draw.random() < 0.9
                connection.sendall(b"\n".join(lines) + (b"\n" if ended else b""))
                if not ended:  # two ends of cut lines never meet as a lease
                    break
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65536):
                heard += data
        return said, heard.count(b"\n")

    def _look(self) -> str:
        assert self.helper.process is not None
        if self.helper.process.poll() is not None:
            return f"the helper has ended with {self.helper.process.returncode}"
        client = Helper(self.helper.socket)
        try:
            found = client.status()
        except HelperGone as error:
            return f"the helper does not answer: {error}"
        finally:
            client.close()
        if found.holders or self.smc.get("writes"):
            return f"{found.holders} leases, {self.smc.get('writes')} writes to fans"
        if "Traceback" in self.helper.log.read_text():
            return "a traceback in the log"
        size = self.helper.resident_kib()
        return "" if size <= MOST_KIB else f"{size} KiB resident"


def take_and_give_back(target: Target) -> str:
    """After all of it a real lease still works."""
    client = Helper(target.helper.socket)
    client.hold(5)
    until(lambda: target.smc.held)
    client.release()
    until(lambda: target.smc.automatic)
    return ""


def summarise(samples: list[Sample], target: Target) -> dict[str, Any]:
    faults = [sample["fault"] for sample in samples if sample["fault"]]
    return {
        "lines": sum(sample["lines"] for sample in samples),
        "answers": sum(sample["answers"] for sample in samples),
        "connections": sum(sample["connections"] for sample in samples),
        "faults": len(faults),
        "first_fault": faults[0] if faults else "none",
        "fan_writes": target.smc.get("writes"),
        "resident_kib": target.helper.resident_kib(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="fuzzes the fan helper's socket")
    parser.add_argument("--lines", type=int, default=200_000, help="how many lines")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    args = parser.parse_args()
    journal, samples = Journal("fan_fuzz", args), list[Sample]()
    folder = Path(tempfile.mkdtemp(prefix="mtplx-", dir="/tmp"))
    target = Target(folder)
    try:
        for number in range(-(-args.lines // CHUNK)):
            count = min(CHUNK, args.lines - number * CHUNK)
            samples.append(
                journal.take(f"lines {number}", lambda at=number, lines=count: target.send(at, lines))
            )
            if samples[-1]["fault"]:
                break
        summary = summarise(samples, target)
        if not summary["faults"]:
            take_and_give_back(target)
    finally:
        target.helper.kill()
        shutil.rmtree(folder, ignore_errors=True)
    report(summary, journal.finish(summary), failed=bool(summary["faults"]))


if __name__ == "__main__":
    run(main)
