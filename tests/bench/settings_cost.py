"""Weighs what filters, penalties, rules and log-probabilities add to a round, against greedy rounds of the prompts.

    python tests/bench/settings_cost.py --prompts 4 --max-tokens 64 --depth 3

Greedy decoding filters nothing and draws nothing. Each setting's rounds are timed in turn with greedy ones, prompt by
prompt; `share_of_round` is what a median round has on top of a greedy one, of that round. Rounds of different texts
differ by more than settings cost, so `alone` times shaping, drawing and judging by themselves, on logits of the model's
sizes, and takes their share of a greedy round and themselves.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import Any

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.engine.draft_vocab import DraftVocab
from mtplxd.engine.judging import Drafts, draw_drafts, judge
from mtplxd.engine.logprobs import measure_logprobs
from mtplxd.engine.request import BLOCK, COUPLED, SamplerSettings
from mtplxd.engine.row import Row
from mtplxd.engine.shaping import make_shaper, shape_logits
from mtplxd.engine.uniforms import RoundUniforms, UniformSupply
from mtplxd.tune.inprocess import RoundTimes
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
    "all of them without top-k": (replace(PENALTIES, top_k=0), {"logprobs": 5, "law_logprobs": True}),
    "block": (replace(USUAL, acceptance=BLOCK), {}),
    "coupled": (replace(USUAL, acceptance=COUPLED), {}),
}
WARM_TOKENS = 8
ALONE_RUNS = 25
LOGIT_SPREAD = 4.0


def time_rounds(
    bench: Workbench, prompt: list[int], sampler: SamplerSettings, extra: dict[str, Any], args: Any
) -> float:
    """Median milliseconds of a round."""
    rounds = RoundTimes()
    bench.decode(prompt, replace(sampler, seed=1), args.depth, WARM_TOKENS, **extra)
    bench.decode(prompt, replace(sampler, seed=1), args.depth, args.max_tokens, rounds, **extra)
    return rounds.median_ms


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


def time_alone(bench: Workbench, sampler: SamplerSettings, extra: dict[str, Any], depth: int) -> float:
    """Median milliseconds that a round's drafts, judgement and log-probabilities take without any forward."""
    from mtplxd.platform.mlx import mx

    target, head = bench.model.target, bench.model.head
    size, ids = target.vocab_size, head.draft_vocab
    vocab = None if ids is None else DraftVocab(ids, size)
    raw = mx.random.normal((1, depth + 1, size)) * LOGIT_SPREAD
    drafted = mx.random.normal((1, 1, size if ids is None else len(ids))) * LOGIT_SPREAD
    mx.eval(raw, drafted)
    history = list(range(120))
    row = Row(history, sampler, depth, shaper=make_shaper(sampler, history), logprobs=extra.get("logprobs"))
    row.commit(history[:40])
    times = []
    for index in range(ALONE_RUNS):
        source = RoundUniforms([UniformSupply(1)], [index], [index])
        source.races(0, depth + 1, size)  # made while the forward runs
        begin = time.perf_counter()
        mx.eval(judge_alone(row, raw, drafted, source, vocab))
        times.append(1e3 * (time.perf_counter() - begin))
    return median(times)


def judge_alone(
    row: Row, raw: Any, drafted: Any, source: RoundUniforms, vocab: DraftVocab | None
) -> list[Any]:
    """What `round` does with a head's and the target's logits; gives the arrays it waits for."""
    from mtplxd.platform.mlx import mx

    size, ids, laws = raw.shape[-1], [], []
    for step in range(row.depth):
        unseen = mx.stack(ids, axis=1) if ids else mx.zeros((1, 0), mx.int32)
        shaped = shape_logits(drafted, [row.shaper], unseen, step, None, vocab)[:, 0]
        chosen, law = draw_drafts([row], shaped, step, source, vocab.ids if vocab else None, size)
        ids.append(chosen)
        laws.append(law)
    stacked = None if laws[0] is None else mx.stack(laws, axis=1)
    count = mx.array([row.depth])
    drafts = Drafts(mx.stack(ids, axis=1), stacked, count, mx.array([True]), vocab, [row.depth])
    found = judge([row], shape_logits(raw, [row.shaper], drafts.ids), drafts, source, full=False)
    measured = measure_logprobs(raw, found, drafts.ids, [row.logprobs])
    return [*found[:3], *(measured.arrays if measured else ())]


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
    greedy_ms = median(sample["greedy_round_ms"] for sample in samples)
    nothing = bench.call(lambda: time_alone(bench, GREEDY, {}, args.depth))
    alone = {}
    for name, (sampler, extra) in SETTINGS.items():

        def weigh_alone(sampler: SamplerSettings = sampler, extra: dict[str, Any] = extra) -> float:
            return time_alone(bench, sampler, extra, args.depth) - nothing

        took = bench.call(weigh_alone)
        alone[name] = {"ms": round(took, 2), "share": round(took / (greedy_ms + took), 4)}
    summary = {
        "alone": alone,
        "share_of_round": {name: round(median(s[name] for s in samples), 4) for name in SETTINGS},
        "greedy_round_ms": round(greedy_ms, 1),
    }
    report(summary, journal.finish(summary))


if __name__ == "__main__":
    run(main)
