"""Checks that greedy text is the same at every depth, and lists near-ties with the gap between the two best logits.

    python tests/bench/greedy_identity.py --prompts 20 --max-tokens 200 --depths 0,1,2,3

A divergence passes only where the target's top-2 gap, in a one-row forward over the common text, is below 1e-4.
"""

from __future__ import annotations

from typing import Any

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.engine.request import SamplerSettings
from mtplxd.tune.identity import first_difference
from mtplxd.tune.prompts import load_suite
from workbench import Workbench, collect_tokens

NEAR_TIE = 1e-4
GREEDY = SamplerSettings(temperature=0.0)


def answer(bench: Workbench, prompt: list[int], depth: int, tokens: int) -> list[int]:
    made: list[int] = []
    bench.decode(prompt, GREEDY, depth, tokens, collect_tokens(made))
    return made


def top2_gap(bench: Workbench, tokens: list[int]) -> float:
    """Between the two largest logits after `tokens`, the last of them run alone, as plain decoding does."""
    from mtplxd.platform.mlx import mx

    target: Any = bench.model.target
    cache = target.make_cache(1)
    if tokens[:-1]:
        target.run(mx.array([tokens[:-1]], mx.int32), cache)
    hidden, _ = target.run(mx.array([tokens[-1:]], mx.int32), cache)
    best = mx.sort(mx.topk(target.logits(hidden)[0, -1], 2)).tolist()
    return float(best[1] - best[0])


def compare(bench: Workbench, prompt: list[int], depths: list[int], tokens: int) -> Sample:
    """The first divergence of each depth from depth 0, where there is one."""
    plain = answer(bench, prompt, 0, tokens)
    found = []
    for depth in depths:
        other = answer(bench, prompt, depth, tokens)
        assert len(other) == len(plain)
        at = first_difference(plain, other)
        if at is not None:
            gap = top2_gap(bench, [*prompt, *plain[:at]])
            found.append({"depth": depth, "position": at, "gap": gap})
    return {"tokens": len(plain), "divergences": found}


def main() -> None:
    parser = make_parser(__doc__ or "", prompts=20, max_tokens=200)
    parser.add_argument("--depths", default="1,2,3", help="depths compared with depth 0")
    args = parser.parse_args()
    depths = [int(depth) for depth in args.depths.split(",") if int(depth)]
    journal = Journal("greedy_identity", args)
    bench = Workbench(find_pack(args.model), plain=False)
    prompts = bench.render(load_suite(args.suite, args.prompts))
    samples = []
    for index, prompt in enumerate(prompts):

        def make(prompt: list[int] = prompt) -> Sample:
            return bench.call(lambda: compare(bench, prompt, depths, args.max_tokens))

        samples.append(journal.take(str(index), make))
    divergences = [
        {"prompt": at, **found} for at, sample in enumerate(samples) for found in sample["divergences"]
    ]
    summary = {
        "texts": len(samples) * len(depths),
        "tokens_each": args.max_tokens,
        "divergences": sum(found["gap"] >= NEAR_TIE for found in divergences),
        "near_ties": [found for found in divergences if found["gap"] < NEAR_TIE],
        "passed": all(found["gap"] < NEAR_TIE for found in divergences),
    }
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
