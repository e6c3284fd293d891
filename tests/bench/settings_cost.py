"""Weighs what filters, penalties, rules and log-probabilities add to a round, against greedy rounds of the prompts.

    python tests/bench/settings_cost.py --prompts 4 --max-tokens 64 --depth 3

Greedy decoding filters nothing and draws nothing. Each setting's rounds are timed in turn with greedy ones, prompt by
prompt; the share is what a median round has on top of a greedy one, of that round.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.engine.events import Event, Text
from mtplxd.engine.request import BLOCK, COUPLED, SamplerSettings
from mtplxd.tune.prompts import load_suite
from workbench import Workbench

GREEDY = SamplerSettings(temperature=0.0)
USUAL = SamplerSettings(temperature=0.6, top_p=0.95)
FILTERS = replace(USUAL, top_k=40, min_p=0.02)
PENALTIES = replace(
    FILTERS,
    repetition_penalty=1.1,
    presence_penalty=0.3,
    frequency_penalty=0.2,
    logit_bias=((11, 1.5), (400, -2.0)),
)
SETTINGS: dict[str, tuple[SamplerSettings, dict[str, Any]]] = {
    "usual": (USUAL, {}),
    "filters": (FILTERS, {}),
    "filters and penalties": (PENALTIES, {}),
    "filters, penalties, log-probabilities": (PENALTIES, {"logprobs": 5, "law_logprobs": True}),
    "block": (replace(USUAL, acceptance=BLOCK), {}),
    "coupled": (replace(USUAL, acceptance=COUPLED), {}),
}
WARM_TOKENS = 8


class Stamps:
    """When each round's text came."""

    def __init__(self) -> None:
        self._at: list[float] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Text) and event.tokens:
            self._at.append(time.perf_counter())

    @property
    def rounds_ms(self) -> list[float]:
        return [1e3 * (later - earlier) for earlier, later in pairwise(self._at)]


def time_rounds(
    bench: Workbench, prompt: list[int], sampler: SamplerSettings, extra: dict[str, Any], args: Any
) -> float:
    """Median milliseconds of a round."""
    stamps = Stamps()
    bench.decode(prompt, replace(sampler, seed=1), args.depth, WARM_TOKENS, **extra)
    bench.decode(prompt, replace(sampler, seed=1), args.depth, args.max_tokens, stamps, **extra)
    return median(stamps.rounds_ms)


def weigh(bench: Workbench, prompt: list[int], args: Any) -> Sample:
    """Each setting's share of its round, beside greedy rounds before and after it."""
    sample: Sample = {}
    before = time_rounds(bench, prompt, GREEDY, {}, args)
    for name, (sampler, extra) in SETTINGS.items():
        found = time_rounds(bench, prompt, sampler, extra, args)
        after = time_rounds(bench, prompt, GREEDY, {}, args)
        sample[name] = 1 - (before + after) / 2 / found
        before = after
    return {**sample, "greedy_round_ms": before}


def main() -> None:
    parser = make_parser(__doc__ or "", prompts=4, max_tokens=64)
    parser.add_argument("--depth", type=int, default=3, help="drafts a round")
    args = parser.parse_args()
    journal = Journal("settings_cost", args)
    bench = Workbench(find_pack(args.model), plain=False)
    samples = []
    for index, prompt in enumerate(bench.render(load_suite(args.suite, args.prompts))):

        def make(prompt: list[int] = prompt) -> Sample:
            return bench.call(lambda: weigh(bench, prompt, args))

        samples.append(journal.take(str(index), make))
    summary = {"share_of_round": {name: round(median(s[name] for s in samples), 4) for name in SETTINGS}}
    report(summary, journal.finish(summary))


if __name__ == "__main__":
    run(main)
