"""Times what a user waits for beside decoding, and weighs the daemon: start, status, help, load, peak memory.

    python tests/bench/latency.py --repeats 9

A daemon of its own loads the pack and answers prompts, a long one among them; then its peak resident size is read.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplx_client import Client
from mtplxd.packs.pack import Pack
from mtplxd.tune.prompts import load_suite
from support.daemon_process import DaemonProcess, clean_environment, running_daemon, short_folder
from threads import peak_rss

LONG_REPEATS = 100
"""Times that a sentence is repeated to make a long prompt."""
SENTENCE = "The harbour lay quiet under the morning fog. "


def time_it(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def run_mtplx(home: Path, *words: str) -> None:
    script = Path(sys.executable).with_name("mtplx")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "mtplx_client"]
    subprocess.run([*command, *words], env=clean_environment(home), capture_output=True, check=True)


def time_start() -> Sample:
    """From the process's begin to its ready line, on an empty home."""
    with short_folder() as home:
        daemon = DaemonProcess(home)
        ready_s = time_it(daemon.start)
        daemon.stop()
    return {"s": ready_s}


def weigh(client: Client, pid: int, pack: Pack, prompts: Sequence[str], tokens: int) -> Sample:
    """Loads the pack, answers at the default depth, and reads the peak."""
    load_s = time_it(lambda: client.load(str(pack.path), force=True))
    long = SENTENCE * min(LONG_REPEATS, pack.context // 64)
    for prompt in (*prompts, long):
        client.complete(prompt, model=str(pack.path), max_tokens=tokens, ignore_eos=True, force=True)
    [resident] = client.ps()
    weights = resident.bytes_body + resident.bytes_head
    peak = peak_rss(pid)
    return {"load_s": load_s, "weights": weights, "peak": peak, "over_weights": peak - weights}


def main() -> None:
    parser = make_parser(__doc__ or "", prompts=2, max_tokens=64)
    parser.add_argument("--repeats", type=int, default=5, help="how often each command is timed")
    args = parser.parse_args()
    pack = find_pack(args.model)
    prompts = [prompt.text for prompt in load_suite(args.suite, args.prompts).prompts]
    journal = Journal("latency", args)
    starts = [journal.take(f"ready {turn}", time_start) for turn in range(args.repeats)]
    with short_folder() as home, running_daemon(home) as daemon, Client(socket=daemon.socket) as client:
        weight = journal.take("weight", lambda: weigh(client, daemon.pid, pack, prompts, args.max_tokens))
        status, helps = (
            [
                journal.take(
                    f"{word} {turn}", lambda word=word: {"s": time_it(lambda: run_mtplx(home, word))}
                )
                for turn in range(args.repeats)
            ]
            for word in ("status", "--help")
        )
    summary = {
        "ready_s": _middle(starts),
        "status_s": _middle(status),
        "help_s": _middle(helps),
        "load_s": weight["load_s"],
        "weights_mb": weight["weights"] / 1e6,
        "peak_over_weights_mb": weight["over_weights"] / 1e6,
    }
    report(summary, journal.finish(summary))


def _middle(samples: list[Sample]) -> float:
    return median(sample["s"] for sample in samples)


if __name__ == "__main__":
    run(main)
