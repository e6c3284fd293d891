"""Proves the law of the text in full: filter mixes, depths, draft vocabularies and lengths, float64 and float32.

    python tests/bench/proof_engine.py

Each case enumerates all outcomes of the real round for six tokens and writes its distance to plain decoding; hours in
all, and an interrupted run goes on with the next case. Ends with 1 where a distance exceeds its bound.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import RESULTS, Journal, Sample, report
from mtplxd.engine.request import SamplerSettings
from mtplxd.platform.mlx import mx
from support.enumeration import Enumeration, Problem
from support.exact_float64 import use_exact_exponentials
from support.proof_cases import (
    ALL_FILTERS,
    BOUND_FLOAT32,
    BOUND_FLOAT64,
    HORIZON,
    MIXES,
    PROMPT,
    REDUCED,
    distances,
    fixed,
    varying,
)
from support.table_model import TableHead, TableTarget

SAMPLERS = {"all": ALL_FILTERS, **MIXES, "temperature": SamplerSettings(temperature=1.5)}
BOUNDS = {"float64": BOUND_FLOAT64, "float32": BOUND_FLOAT32}


@dataclass(frozen=True)
class Case:
    """One enumeration."""

    mix: str
    depth: int
    vocab: str
    lengths: str
    dtype: str

    @property
    def key(self) -> str:
        return f"{self.mix}, depth {self.depth}, {self.vocab} draft vocabulary, {self.lengths} lengths, {self.dtype}"

    def prove(self) -> Sample:
        """Enumerates it: the distance, the rows it took and the seconds."""
        begin = time.perf_counter()
        target = TableTarget(dtype=getattr(mx, self.dtype))
        model = Enumeration(target, TableHead(target, None if self.vocab == "full" else REDUCED), HORIZON)
        lengths = fixed(self.depth) if self.lengths == "fixed" else varying(target, self.depth)
        [distance] = distances(model, [Problem(PROMPT, SAMPLERS[self.mix], lengths)])
        return {"distance": distance, "rows": model.rows, "seconds": round(time.perf_counter() - begin, 1)}


def all_cases(depths: list[int]) -> Iterator[Case]:
    """From small to large. Unfiltered, five drafts to the power of four is left to the reduced vocabulary."""
    for depth in depths:
        for mix in SAMPLERS:
            for vocab in ("reduced", "full"):
                if mix == "temperature" and vocab == "full" and depth > 2:
                    continue
                for lengths in ("fixed", "varying"):
                    for dtype in BOUNDS if mix in ("all", "temperature") else ("float64",):
                        yield Case(mix, depth, vocab, lengths, dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--depths", default="1,2,3,4", help="draft depths")
    parser.add_argument("--mixes", default=",".join(SAMPLERS), help="filter mixes")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has proved")
    args = parser.parse_args()
    use_exact_exponentials(pytest.MonkeyPatch())
    journal = Journal("proof_engine", args)
    worst, rows, failed = dict.fromkeys(BOUNDS, 0.0), 0, []
    for case in all_cases([int(depth) for depth in args.depths.split(",")]):
        if case.mix not in args.mixes.split(","):
            continue
        sample = journal.take(case.key, case.prove)
        print(f"{sample['distance']:.1e}  {sample['rows']:>9} rows  {case.key}", flush=True)
        worst[case.dtype] = max(worst[case.dtype], sample["distance"])
        rows += sample["rows"]
        if sample["distance"] > BOUNDS[case.dtype]:
            failed.append(case.key)
    summary = {**{f"largest_distance_{dtype}": distance for dtype, distance in worst.items()}, "rows": rows}
    summary |= {"bounds": BOUNDS, "failed": failed}
    report(summary, journal.finish(summary), failed=bool(failed))


if __name__ == "__main__":
    main()
