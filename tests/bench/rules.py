"""Compares `block` with `token` in tokens a round, paired by prompt and seed, at several depths and temperatures.

    python tests/bench/rules.py --prompts 8 --max-tokens 96 --depths 2,3,4

Beside what each rule made of its own text, every round of either is weighed under both rules: drafts that are accepted
on average, given what was drafted. That difference is free of the luck of acceptance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean, stdev
from typing import Any

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.engine.request import BLOCK, TOKEN, SamplerSettings
from mtplxd.tune.prompts import load_suite
from workbench import Workbench

SAMPLERS = {"T 0.6, top_p 0.95": SamplerSettings(0.6, 0.95), "T 1.0": SamplerSettings(1.0)}


@contextmanager
def weighed_rounds(found: list[Any]) -> Iterator[None]:
    """While it lasts, each round adds the drafts it accepts on average: an array [2], under `token` and `block`."""
    from mtplxd.engine import judging
    from mtplxd.engine.acceptance import block_chances, token_chances
    from mtplxd.platform.mlx import mx

    real = judging._chances

    def chances(laws: Any, lengths: Any, by_block: Any) -> Any:
        counts = mx.arange(laws.q.shape[1]) < lengths[:, None]
        reached = mx.cumprod(token_chances(laws).pass_with, axis=1)
        products = block_chances(laws, lengths).weights[:, 1:]
        found.append(mx.stack([mx.sum(reached * counts), mx.sum(products * counts)]))
        return real(laws, lengths, by_block)

    judging._chances = chances
    try:
        yield
    finally:
        judging._chances = real


def measure(bench: Workbench, prompt: list[int], sampler: SamplerSettings, depth: int, tokens: int) -> Sample:
    """One answer: its tokens and rounds, and what was accepted on average under each rule."""
    found: list[Any] = []
    with weighed_rounds(found):
        finished = bench.decode(prompt, sampler, depth, tokens)
    averages = [array.tolist() for array in found]
    return {
        "tokens": finished.completion_tokens,
        "rounds": finished.stats.rounds,
        "weighed": len(averages),
        "expected": {
            rule: sum(pair[place] for pair in averages) for place, rule in enumerate((TOKEN, BLOCK))
        },
    }


def spread(values: list[float]) -> dict[str, float]:
    """Mean, and its standard error."""
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return {"mean": round(fmean(values), 4), "standard_error": round(error, 4)}


def compare(pairs: list[dict[str, Sample]]) -> dict[str, Any]:
    """Of one depth and sampler, from pairs of answers to one prompt and seed."""
    speeds = {
        rule: [pair[rule]["tokens"] / pair[rule]["rounds"] for pair in pairs] for rule in (TOKEN, BLOCK)
    }
    differences = [block - token for token, block in zip(speeds[TOKEN], speeds[BLOCK], strict=True)]
    answers = [sample for pair in pairs for sample in pair.values()]
    gains = [
        (sample["expected"][BLOCK] - sample["expected"][TOKEN]) / max(sample["weighed"], 1)
        for sample in answers
    ]
    return {
        "pairs": len(pairs),
        **{f"tokens_per_round_{rule}": round(fmean(values), 4) for rule, values in speeds.items()},
        "difference": spread(differences),
        "expected_difference": spread(gains),
    }


def main() -> None:
    parser = make_parser(__doc__ or "", prompts=8, max_tokens=96)
    parser.add_argument("--depths", default="2,3,4", help="draft depths")
    parser.add_argument("--seeds", type=int, default=1, help="seeds a prompt")
    args = parser.parse_args()
    journal = Journal("rules", args)
    bench = Workbench(find_pack(args.model), plain=False)
    prompts = bench.render(load_suite(args.suite, args.prompts))

    def answer(place: int, sampler: SamplerSettings, depth: int, name: str) -> Sample:
        key = f"{name}, depth {depth}, prompt {place}, seed {sampler.seed}, {sampler.acceptance}"
        work = partial(measure, bench, prompts[place], sampler, depth, args.max_tokens)
        return journal.take(key, lambda: bench.call(work))

    depths = [int(depth) for depth in args.depths.split(",")]
    pairs: dict[str, list[dict[str, Sample]]] = {}
    for seed, place, name, depth in product(range(args.seeds), range(len(prompts)), SAMPLERS, depths):
        samplers = [
            replace(SAMPLERS[name], seed=1000 * seed + place, acceptance=rule) for rule in (TOKEN, BLOCK)
        ]
        pair = {given.acceptance: answer(place, given, depth, name) for given in samplers}
        pairs.setdefault(f"{name}, depth {depth}", []).append(pair)
        print(f"{name}, depth {depth}", compare(pairs[f"{name}, depth {depth}"]), flush=True)
    found = {name: compare(those) for name, those in pairs.items()}
    summary = {"laws": found}
    report(summary, journal.finish(summary))


if __name__ == "__main__":
    run(main)
