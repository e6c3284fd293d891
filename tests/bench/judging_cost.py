"""Times what a round does beside its forwards: shaping, drafting, judging, on random logits. Loads no model.

    python tests/bench/judging_cost.py --vocab 49152 --draft-vocab 8192

Each case's graph is awaited at once, as a round's is; the median and the least of `--runs` are told in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from mtplxd.engine.draft_vocab import DraftVocab
from mtplxd.engine.judging import Drafts, draw_drafts, judge
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, SamplerSettings
from mtplxd.engine.row import Row
from mtplxd.engine.shaping import make_shaper, shape_logits
from mtplxd.engine.uniforms import RoundUniforms, UniformSupply
from mtplxd.tune.facts import read_place

RESULTS = Path(__file__).parent / "results"
LOGIT_SPREAD = 4.0
USUAL = SamplerSettings(temperature=0.6, top_p=0.95)
UNLIKE = [
    replace(USUAL, temperature=0.5 + place / 10, top_p=0.9 + place / 100, top_k=20 * place, acceptance=rule)
    for place, rule in enumerate((BLOCK, TOKEN) * 4)
]
PENALISED = replace(USUAL, repetition_penalty=1.1, frequency_penalty=0.2, logit_bias=((11, 1.5),))
CASES: dict[str, tuple[list[SamplerSettings], list[int]]] = {
    "1 row, depth 0": ([USUAL], [0]),
    "1 row, depth 1": ([USUAL], [1]),
    "1 row, depth 3": ([USUAL], [3]),
    "1 row, depth 3, top-k": ([replace(USUAL, top_k=40)], [3]),
    "1 row, depth 3, no cut": ([SamplerSettings()], [3]),
    "1 row, depth 3, coupled": ([replace(USUAL, acceptance=COUPLED)], [3]),
    "1 row, depth 3, penalties": ([PENALISED], [3]),
    "8 rows, depth 1, one sampler": ([USUAL] * 8, [1] * 8),
    "8 rows, depth 1, eight samplers": (UNLIKE, [1] * 8),
    "8 rows, depth 1, one with penalties": ([PENALISED, *[USUAL] * 7], [1] * 8),
    "8 rows, one at depth 3, others plain": ([USUAL] * 8, [3, *[0] * 7]),
}


class Case:
    """Rows of given samplers and depths, and logits for them."""

    def __init__(
        self, samplers: Sequence[SamplerSettings], depths: Sequence[int], vocab: DraftVocab, size: int
    ) -> None:
        from mtplxd.platform.mlx import mx

        self.depths, self.vocab, self.size = depths, vocab, size
        shape = (len(samplers), max(depths) + 1, size)
        self.raw = mx.random.normal(shape) * LOGIT_SPREAD
        self.drafted = mx.random.normal((len(samplers), 1, len(vocab.host_ids))) * LOGIT_SPREAD
        mx.eval(self.raw, self.drafted)
        history = list(range(120))
        self.rows = [
            Row(history, sampler, depth, shaper=make_shaper(sampler, history))
            for sampler, depth in zip(samplers, depths, strict=True)
        ]

    def play(self, index: int) -> list[Any]:
        """The arrays that a round waits for."""
        from mtplxd.platform.mlx import mx

        count, shapers = len(self.rows), [row.shaper for row in self.rows]
        source = RoundUniforms([UniformSupply(b) for b in range(count)], [index] * count, [index] * count)
        ids: list[Any] = []
        laws: list[Any] = []
        for step in range(max(self.depths)):
            unseen = mx.stack(ids, axis=1) if ids else mx.zeros((count, 0), mx.int32)
            shaped = shape_logits(self.drafted, shapers, unseen, step, None, self.vocab)[:, 0]
            chosen, law = draw_drafts(self.rows, shaped, step, source, self.vocab.ids, self.size)
            mx.async_eval(chosen)
            ids.append(chosen)
            laws.append(law)
        stacked = None if not laws or laws[0] is None else mx.stack(laws, axis=1)
        drafted = mx.stack(ids, axis=1) if ids else mx.zeros((count, 0), mx.int32)
        healthy = mx.ones((count,), mx.bool_)
        drafts = Drafts(drafted, stacked, mx.array(self.depths), healthy, self.vocab, self.depths)
        logits = shape_logits(self.raw, shapers, drafts.ids)
        return list(judge(self.rows, logits, drafts, source, full=False)[:3])


def time_case(case: Case, runs: int) -> dict[str, float]:
    """Milliseconds; races are made beforehand, as while a forward runs."""
    from mtplxd.platform.mlx import mx

    times = []
    for index in range(runs + 3):
        begin = time.perf_counter()
        mx.eval(case.play(index))
        times.append(1e3 * (time.perf_counter() - begin))
    return {"median_ms": round(median(times[3:]), 2), "least_ms": round(min(times[3:]), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab", type=int, default=49152, help="ids of the target")
    parser.add_argument("--draft-vocab", type=int, default=8192, help="ids of the head")
    parser.add_argument("--runs", type=int, default=25, help="timed rounds a case")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result")
    args = parser.parse_args()
    from mtplxd.platform.mlx import mx

    vocab = DraftVocab(mx.arange(args.draft_vocab, dtype=mx.int32), args.vocab)
    found = {}
    for name, (samplers, depths) in CASES.items():
        found[name] = time_case(Case(samplers, depths, vocab, args.vocab), args.runs)
        print(name, found[name], flush=True)
    settings = {key: value for key, value in vars(args).items() if key != "out"}
    result = {"bench": "judging_cost", "settings": settings, "place": asdict(read_place()), "cases": found}
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "judging_cost.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
