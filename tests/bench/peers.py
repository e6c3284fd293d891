"""Compares plain decoding with `mlx_lm.stream_generate`: same weights in memory, BLAS, prompts and thread, interleaved.

    python tests/bench/peers.py --prompts 8 --max-tokens 128

Prints the median of per-prompt ratios, greedy and at T 0.6 top_p 0.95. A speed is (tokens − 1) / (time of the last
token − time of the first), both clocks read where a user would see the token.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import fmean, median
from typing import Any

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.engine.events import Event, Text
from mtplxd.engine.request import SamplerSettings
from mtplxd.tune.prompts import load_suite
from workbench import Workbench

SAMPLERS = {
    "greedy": SamplerSettings(temperature=0.0),
    "sampled": SamplerSettings(temperature=0.6, top_p=0.95),
}
WARM_TOKENS = 16

Peer = Callable[[list[int], SamplerSettings, int], float]
"""Answers a prompt to the token limit; gives tokens a second."""


class Stamps:
    """When tokens arrived."""

    def __init__(self) -> None:
        self.count, self.first, self.last = 0, 0.0, 0.0

    def add(self, count: int) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.count += count

    @property
    def tok_s(self) -> float:
        return (self.count - 1) / (self.last - self.first)


def time_ours(bench: Workbench, prompt: list[int], sampler: SamplerSettings, tokens: int) -> float:
    stamps = Stamps()

    def sink(event: Event) -> None:
        if isinstance(event, Text) and event.tokens:
            stamps.add(len(event.tokens))

    bench.decode(prompt, sampler, 0, tokens, sink)
    return stamps.tok_s


def open_peer(bench: Workbench) -> Peer:
    """mlx-lm on the very model that our body drives, which without a head is its own class, unchanged."""
    from mlx_lm.generate import stream_generate
    from mlx_lm.sample_utils import make_sampler
    from mlx_lm.tokenizer_utils import load as load_tokenizer

    target: Any = bench.model.target
    tokenizer = load_tokenizer(bench.model.pack.path)
    tokenizer._eos_token_ids = set()  # stop tokens are ignored on both sides

    def time_theirs(prompt: list[int], sampler: SamplerSettings, tokens: int) -> float:
        stamps = Stamps()
        chosen = None if sampler.greedy else make_sampler(sampler.temperature, sampler.top_p)
        for _ in stream_generate(target.model, tokenizer, prompt, max_tokens=tokens, sampler=chosen):
            stamps.add(1)
        return stamps.tok_s

    return time_theirs


def measure_prompt(bench: Workbench, peer: Peer, prompt: list[int], turn: int, tokens: int) -> Sample:
    """Each side twice with each sampler, A B B A, so that a machine growing slower or faster favours none."""
    sample: Sample = {}
    for name, sampler in SAMPLERS.items():
        speeds: dict[str, list[float]] = {"ours": [], "mlx_lm": []}
        first, second = sorted(speeds, reverse=bool(turn % 2))
        for arm in (first, second, second, first):
            ours = arm == "ours"
            speed = time_ours(bench, prompt, sampler, tokens) if ours else peer(prompt, sampler, tokens)
            speeds[arm].append(speed)
        sample |= {f"{name}_{arm}": fmean(found) for arm, found in speeds.items()}
    return sample


def summarise(samples: list[Sample]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for name in SAMPLERS:
        summary[f"{name}_ratio"] = median(
            sample[f"{name}_ours"] / sample[f"{name}_mlx_lm"] for sample in samples
        )
        summary[f"{name}_ours_tok_s"] = median(sample[f"{name}_ours"] for sample in samples)
        summary[f"{name}_mlx_lm_tok_s"] = median(sample[f"{name}_mlx_lm"] for sample in samples)
    return summary


def main() -> None:
    args = make_parser(__doc__ or "").parse_args()
    journal = Journal("peers", args)
    bench = Workbench(find_pack(args.model), plain=True)
    prompts = bench.render(load_suite(args.suite, args.prompts))
    peer = bench.call(lambda: open_peer(bench))
    bench.call(lambda: measure_prompt(bench, peer, prompts[0], 0, WARM_TOKENS))
    samples = []
    for turn, prompt in enumerate(prompts):

        def make(turn: int = turn, prompt: list[int] = prompt) -> Sample:
            return bench.call(lambda: measure_prompt(bench, peer, prompt, turn, args.max_tokens))

        samples.append(journal.take(str(turn), make))
    summary = summarise(samples)
    report(summary, journal.finish(summary))


if __name__ == "__main__":
    run(main)
