"""Times what keeping and giving back the beginnings of prompts costs, beside reading them.

    python tests/bench/prefixes.py --tokens 1000

In turn, prompts of other tokens each time: one read without keeping, the same read and kept, and the same given back.
A running row waits for `restore_ms` where another gets its prompt back, and for `keep_ms_a_chunk` more where another's
chunk is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.engine.batch import open_batch
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.prefixes import Prefixes
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.tiers import Tiers
from workbench import Workbench

LIMIT = 1 << 30


def spent(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds that `work` takes, and what it gives."""
    begin = time.perf_counter()
    found = work()
    return 1000 * (time.perf_counter() - begin), found


class Kept:
    """Adds up what an observer of chunks takes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.times: list[float] = []

    def __call__(self, *chunk: Any) -> None:
        self.times.append(spent(lambda: self._inner(*chunk))[0])


def finish(prefill: Prefill, chunk: int) -> None:
    """Reads all that is left."""
    while not prefill.finished:
        prefill.step(chunk)


def time_prompt(bench: Workbench, count: int, chunk: int, seed: int) -> Sample:
    """One prompt, read, kept and given back."""
    tokens = np.random.default_rng(seed).integers(3, bench.model.target.vocab_size, count + 1).tolist()
    request = Request("bench", "bench", bench.model, tokens, SamplerSettings(temperature=0.0), 1, depth=1)
    index: PrefixIndex[Any] = PrefixIndex(LIMIT)
    shared = Prefixes(Tiers(index))
    cold = Prefill(open_batch(request), tokens)
    cold_ms, _ = spent(lambda: finish(cold, chunk))
    keeping = shared.seek(request).begin(open_batch(request))
    keeping._on_chunk = kept = Kept(keeping._on_chunk)
    read_ms, _ = spent(lambda: finish(keeping, chunk))
    seek_ms, sought = spent(lambda: shared.seek(request))
    restore_ms, restored = spent(lambda: sought.begin(open_batch(request)))
    assert restored.begin == count
    return {
        "cold_ms": cold_ms, "read_and_kept_ms": read_ms, "keep_ms_a_chunk": median(kept.times),
        "keep_ms_worst": max(kept.times), "seek_ms": seek_ms, "restore_ms": restore_ms, "bytes": index.nbytes,
    }  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__, prompts=5)
    parser.add_argument("--tokens", type=int, default=1000, help="tokens that are kept")
    parser.add_argument("--chunk", type=int, default=128, help="positions of a chunk")
    args = parser.parse_args()
    journal, bench = Journal("prefixes", args), Workbench(find_pack(args.model), plain=False)
    bench.call(lambda: time_prompt(bench, 256, args.chunk, 0))
    samples = [
        journal.take(
            f"prompt {n}", lambda n=n: bench.call(lambda: time_prompt(bench, args.tokens, args.chunk, n))
        )
        for n in range(1, args.prompts + 1)
    ]
    summary = {name: median(sample[name] for sample in samples) for name in samples[0]}
    summary["restore_over_cold"] = summary["restore_ms"] / summary["cold_ms"]
    report(summary, journal.finish(summary))


if __name__ == "__main__":
    run(main)
