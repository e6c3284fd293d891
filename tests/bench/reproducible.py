"""Checks that `--reproducible` text is bit for bit the same at every depth, and in a second process.

    python tests/bench/reproducible.py --prompts 50 --max-tokens 200 --depths 0,1,2,3 --temperatures 0.6,1.0

Every text is compared with depth 0's, token by token; a difference anywhere fails. `--width` sets how many positions
all forwards have: what the depths need by default, where the daemon takes what the pack's deepest would.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import Any

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.engine.request import COUPLED, SamplerSettings
from mtplxd.tune.identity import first_difference
from mtplxd.tune.prompts import load_suite
from workbench import Workbench, collect_tokens

SEED = 20_000
"""Prompt i has seed SEED + i at every depth."""


def answer(
    bench: Workbench, prompt: list[int], sampler: SamplerSettings, depth: int, tokens: int
) -> list[int]:
    made: list[int] = []
    finished = bench.decode(prompt, sampler, depth, tokens, collect_tokens(made))
    if finished.stats.exactness != "exact":
        sys.exit("error: forwards of one shape are not stable here, so no text can be promised")
    return made


def sampler_of(temperature: float, index: int) -> SamplerSettings:
    top_p = 0.95 if temperature < 1 else 1.0
    return SamplerSettings(temperature, top_p, seed=SEED + index, acceptance=COUPLED, reproducible=True)


def digest(tokens: list[int]) -> str:
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()


def compare(
    bench: Workbench, prompt: list[int], sampler: SamplerSettings, depths: list[int], tokens: int
) -> Sample:
    """Depth 0's text, and where each other depth's first differs."""
    plain = answer(bench, prompt, sampler, 0, tokens)
    found = []
    for depth in depths:
        other = answer(bench, prompt, sampler, depth, tokens)
        assert len(other) == len(plain)
        at = first_difference(plain, other)
        if at is not None:
            found.append({"depth": depth, "position": at})
    return {"tokens": len(plain), "digest": digest(plain), "differences": found}


def print_digests(bench: Workbench, prompts: list[list[int]], args: Any) -> None:
    """The texts of a fresh process, at the deepest depth."""
    depth = max(map(int, args.depths.split(",")))
    for temperature in map(float, args.temperatures.split(",")):
        for index, prompt in enumerate(prompts):
            sampler = sampler_of(temperature, index)

            def make(prompt: list[int] = prompt, sampler: SamplerSettings = sampler) -> str:
                return digest(answer(bench, prompt, sampler, depth, args.max_tokens))

            print(json.dumps([f"{temperature}:{index}", bench.call(make)]), flush=True)


def digests_of_another_process(args: Any) -> dict[str, str]:
    command = [sys.executable, __file__, "--digests", "--model", args.model, "--suite", args.suite]
    for name in ("max_tokens", "depths", "temperatures", "width"):
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    done = subprocess.run(
        [*command, "--prompts", str(args.again)], check=True, capture_output=True, text=True
    )
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


def main() -> None:
    parser = make_parser(__doc__ or "", prompts=50, max_tokens=200)
    parser.add_argument("--depths", default="0,1,2,3", help="depths compared with depth 0")
    parser.add_argument("--temperatures", default="0.6,1.0", help="each is run")
    parser.add_argument(
        "--width", type=int, default=0, help="positions of every forward (0: the deepest + 1)"
    )
    parser.add_argument("--again", type=int, default=3, help="prompts a second process decodes once more")
    parser.add_argument("--digests", action="store_true", help="print texts' digests and compare nothing")
    args = parser.parse_args()
    depths = [int(depth) for depth in args.depths.split(",") if int(depth)]
    journal = None if args.digests else Journal("reproducible", args)
    bench = Workbench(find_pack(args.model), plain=False)
    bench.model.fixed_width = args.width or max(depths) + 1
    prompts = bench.render(load_suite(args.suite, args.prompts))
    if journal is None:
        print_digests(bench, prompts, args)
        report({}, args.out)
        return
    samples: dict[str, Sample] = {}
    for index, prompt in enumerate(prompts):
        for temperature in map(float, args.temperatures.split(",")):
            sampler = sampler_of(temperature, index)

            def make(prompt: list[int] = prompt, sampler: SamplerSettings = sampler) -> Sample:
                return bench.call(lambda: compare(bench, prompt, sampler, depths, args.max_tokens))

            samples[f"{temperature}:{index}"] = journal.take(f"{temperature}:{index}", make)
    again = digests_of_another_process(args)
    changed = [key for key, found in again.items() if samples[key]["digest"] != found]
    differences = [
        {"text": key, **found} for key, sample in samples.items() for found in sample["differences"]
    ]
    summary = {
        "texts": len(samples) * len(depths),
        "tokens_each": args.max_tokens,
        "differences": differences,
        "texts_decoded_again": len(again),
        "changed_after_restart": changed,
        "passed": not differences and not changed,
    }
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
