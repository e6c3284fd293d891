"""Proves the law of the text in full: settings, depths, draft vocabularies and lengths, float64 and float32.

    python tests/bench/proof_engine.py
    python tests/bench/proof_engine.py --part rows

Each case enumerates all outcomes of the real round, under both rules, for six tokens (the named mixes) or four (all
combinations of settings; fewer where nothing is filtered and many drafts are), and writes the larger distance to plain
decoding; hours in all, and an interrupted run goes on with the next case. The part `rows`, some minutes with results of
its own, does so for each of two or three rows that share rounds, four tokens long, and for pairs of rows together. Ends
with 1 where a distance exceeds its bound.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import RESULTS, Journal, Sample, report
from mtplxd.platform.mlx import mx
from support.enumeration import Enumeration, Problem
from support.exact_float64 import use_exact_exponentials
from support.proof_cases import (
    BOUND_FLOAT32,
    BOUND_FLOAT64,
    COMBINATIONS,
    COMPANIES,
    HORIZON,
    MIXES,
    PAIRS,
    PROMPT,
    REDUCED,
    distances,
    enumerable,
    fixed,
    plain_law,
    under_rules,
    varying,
)
from support.reference_laws import total_variation
from support.row_proof import Company, joint_law
from support.table_model import TableHead, TableTarget

CASES = {**{name: (*mix, HORIZON) for name, mix in MIXES.items()}}
CASES |= {name: (*mix, HORIZON - 2) for name, mix in COMBINATIONS.items() if name not in CASES}
BOUNDS = {"float64": BOUND_FLOAT64, "float32": BOUND_FLOAT32}
LENGTHS = ("fixed", "varying", "drafted")
"""What a round's draft length follows: nothing, the text, or what is drafted."""


TURNS = range(10)
"""Ways in which neighbours behave."""
ROWS_HORIZON = 4
UNFILTERED = frozenset(
    name
    for name, (sampler, _) in COMBINATIONS.items()
    if not (sampler.top_k or sampler.top_p < 1 or sampler.min_p)
)
"""Combinations whose every draft can be every token."""


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
        vocab = None if self.vocab == "full" else REDUCED
        head = TableHead(target, vocab, gaps=0.3 if self.lengths == "drafted" else 0.0)
        sampler, grammar, horizon = CASES[self.mix]
        # three or five drafts to the power of the depth, from every text: with fewer tokens there are fewer of those
        spare = max(0, self.depth - (2 if self.vocab == "full" else 3)) if self.mix in UNFILTERED else 0
        model = Enumeration(target, head, horizon - spare)
        lengths = varying(target, self.depth) if self.lengths == "varying" else fixed(self.depth)
        found = distances(model, under_rules(Problem(PROMPT, sampler, lengths, grammar)))
        seconds = round(time.perf_counter() - begin, 1)
        return {"distance": max(found), "rows": model.rows, "seconds": seconds}


@dataclass(frozen=True)
class RowCase:
    """One row of a company, its neighbours behaving in one way."""

    company: str
    place: int
    turn: int
    vocab: str
    dtype: str

    @property
    def key(self) -> str:
        return f"{self.company}, row {self.place}, neighbours {self.turn}, {self.vocab} draft vocabulary, {self.dtype}"

    def prove(self) -> Sample:
        """Enumerates it: the distance, the rounds it took and the seconds."""
        begin = time.perf_counter()
        target = TableTarget(dtype=getattr(mx, self.dtype), seed=self.turn)
        head = TableHead(target, None if self.vocab == "full" else REDUCED, seed=100 + self.turn)
        problems = COMPANIES[self.company](target)
        horizon = ROWS_HORIZON - (self.vocab == "full")
        model = Company(target, head, horizon, problems=problems, place=self.place, turn=self.turn)
        distance = total_variation(model.law(), plain_law(target, problems[self.place], horizon))
        seconds = round(time.perf_counter() - begin, 1)
        return {"distance": distance, "rows": model.rows, "seconds": seconds}


@dataclass(frozen=True)
class PairCase:
    """Two rows together, nothing left out."""

    pair: str
    dtype: str

    @property
    def key(self) -> str:
        return f"{self.pair}, both together, {self.dtype}"

    def prove(self) -> Sample:
        """Walks all outcomes of one beside all of the other."""
        begin = time.perf_counter()
        target = TableTarget(dtype=getattr(mx, self.dtype), seed=23)
        model = Enumeration(target, TableHead(target, REDUCED, seed=24), horizon=2)
        expected = np.multiply.outer(*(plain_law(target, problem, 2) for problem in PAIRS[self.pair]))
        distance = total_variation(joint_law(model, PAIRS[self.pair]), expected)
        return {"distance": distance, "rows": model.rows, "seconds": round(time.perf_counter() - begin, 1)}


def row_cases() -> Iterator[RowCase | PairCase]:
    """Every row of every company in turn, then the pairs."""
    for name, make in COMPANIES.items():
        for place, problem in enumerate(make(TableTarget())):
            if not enumerable(problem):
                continue
            for turn, vocab in product(TURNS, ("reduced", "full")):
                for dtype in BOUNDS if turn < 2 and vocab == "reduced" else ("float64",):
                    yield RowCase(name, place, turn, vocab, dtype)
    for pair, dtype in product(PAIRS, BOUNDS):
        yield PairCase(pair, dtype)


def all_cases(depths: list[int], mixes: list[str]) -> Iterator[Case]:
    """From small to large. Unfiltered, five drafts to the power of four is left to the reduced vocabulary."""
    for depth in depths:
        for mix in mixes:
            for vocab in ("reduced", "full"):
                if mix == "temperature" and vocab == "full" and depth > 2:
                    continue
                for lengths in LENGTHS:
                    for dtype in BOUNDS if mix in ("all", "everything", "temperature") else ("float64",):
                        yield Case(mix, depth, vocab, lengths, dtype)


def prove_all(
    name: str, cases: Iterable[Case | RowCase | PairCase], args: argparse.Namespace
) -> tuple[dict[str, Any], Path]:
    """Takes every case that is not in the journal: what came of them, and where it is written."""
    journal = Journal(name, args)
    worst, rows, failed = dict.fromkeys(BOUNDS, 0.0), 0, []
    for case in cases:
        sample = journal.take(case.key, case.prove)
        print(f"{sample['distance']:.1e}  {sample['rows']:>9} rows  {case.key}", flush=True)
        worst[case.dtype] = max(worst[case.dtype], sample["distance"])
        rows += sample["rows"]
        if sample["distance"] > BOUNDS[case.dtype]:
            failed.append(case.key)
    summary = {**{f"largest_distance_{dtype}": distance for dtype, distance in worst.items()}, "rows": rows}
    summary |= {"bounds": BOUNDS, "failed": failed}
    return summary, journal.finish(summary)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--depths", default="1,2,3,4", help="draft depths")
    parser.add_argument("--mixes", default=",".join(CASES), help="mixes of settings")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has proved")
    parser.add_argument(
        "--part", choices=("rows", "texts"), help="rows of one round, or one text; both if unsaid"
    )
    args = parser.parse_args()
    part = args.__dict__.pop("part")
    use_exact_exponentials(pytest.MonkeyPatch())
    texts = all_cases([int(depth) for depth in args.depths.split(",")], args.mixes.split(","))
    failed = False
    for name, cases in {"rows": row_cases(), "texts": texts}.items():
        if part in (None, name):
            found = prove_all("proof_engine_rows" if name == "rows" else "proof_engine", cases, args)
            failed |= bool(found[0]["failed"])
    report(*found, failed=failed)


if __name__ == "__main__":
    main()
