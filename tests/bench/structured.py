"""Weighs what a structure adds to a round, and whether masking the drafts pays.

    python tests/bench/structured.py --prompts 3 --max-tokens 64 --depth 3

Each structure is decoded with drafts masked and not masked, in turn with the same prompt without a structure, the whole
order again backwards. `share_of_round` is what a median round has on top of one without a structure, of that round;
`share_of_processor` says the same of processor time, which a busy machine disturbs less, but which counts what is done
while the forward runs too; `host_ms` is the processor time a round spends in the matcher. Greedy: the text is the same
however it is drafted, so that tokens a round compare rounds and nothing else. Sampled answers are counted, not timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.engine.events import Event, Finished, Text
from mtplxd.engine.grammar import Grammar, Matcher, compile_grammar
from mtplxd.engine.request import Request, SamplerSettings
from workbench import Workbench

SCHEMA = """{"type": "array", "minItems": 6, "items": {"type": "object", "properties": {"name": {"type": "string"},
"age": {"type": "integer"}, "city": {"type": "string"}, "married": {"type": "boolean"}},
"required": ["name", "age", "city", "married"], "additionalProperties": false}}"""
REGEX = r"([A-Z][a-z]+( [a-z]+){3,12}[.!?] ){4,40}"
STRUCTURES: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "json_schema": (
        "json_schema",
        SCHEMA,
        (
            "Make up six people who live in France, as a JSON array with name, age, city and married.",
            "List six famous painters as JSON objects with name, age, city and married.",
            "Give six characters of a novel about sailors, as JSON with name, age, city and married.",
        ),
    ),
    "regex": (
        "regex",
        REGEX,
        (
            "Write a short story about a fox and a bear.",
            "Explain why the sky is blue.",
            "Tell me how to bake bread at home.",
        ),
    ),
}
GREEDY, SAMPLED = SamplerSettings(temperature=0.0), SamplerSettings(temperature=0.6, top_p=0.95)
WARM_TOKENS = 12


class TimedMatcher(Matcher):
    """Adds up the processor seconds this thread spends in it."""

    seconds = 0.0

    def mask(self) -> Any:
        return self._timed(super().mask)

    def advance(self, token: int) -> bool:
        return bool(self._timed(lambda: super(TimedMatcher, self).advance(token)))

    def roll_back(self, count: int) -> None:
        self._timed(lambda: super(TimedMatcher, self).roll_back(count))

    def _timed(self, work: Callable[[], Any]) -> Any:
        began = time.thread_time()
        found = work()
        self.seconds += time.thread_time() - began
        return found


@dataclass
class Answer:
    """One answer's rounds."""

    finished: Finished
    rounds_ms: list[float]
    processor_ms: list[float]
    host_ms: float
    tokens: list[int]

    @property
    def tokens_per_round(self) -> float:
        return self.finished.completion_tokens / self.finished.stats.rounds


def answer(
    bench: Workbench,
    prompt: list[int],
    sampler: SamplerSettings,
    depth: int,
    limit: int,
    grammar: Grammar | None = None,
    mask_drafts: bool = True,
) -> Answer:
    """Decodes on this thread, which `Workbench.call` gave us."""
    from mtplxd.engine.decode import Decoder

    stamps: list[tuple[float, float]] = []
    tokens: list[int] = []

    def sink(event: Event) -> None:
        if isinstance(event, Text) and event.tokens:
            stamps.append((time.perf_counter(), time.process_time()))
            tokens.extend(event.tokens)

    plain = grammar is None
    request = Request(
        "bench", "bench", bench.model, list(prompt), sampler, limit, ignore_eos=plain, depth=depth
    )
    request.grammar = grammar
    decoder = Decoder(request, sink, lambda: None, time.perf_counter())
    decoder.batch.mask_drafts = mask_drafts
    matcher = decoder.row.matcher
    if matcher is not None:
        matcher.__class__ = TimedMatcher
    finished = decoder.run()
    host_ms = 1e3 * matcher.seconds / finished.stats.rounds if isinstance(matcher, TimedMatcher) else 0.0
    rounds, processor = ([1e3 * (b - a) for a, b in pairwise(clock)] for clock in zip(*stamps, strict=True))
    return Answer(finished, rounds, processor, host_ms, tokens)


def weigh(bench: Workbench, prompt: list[int], grammar: Grammar, args: Any) -> Sample:
    """Rounds with drafts masked, not masked, and without a structure; sampled ones are counted only."""
    variants: dict[str, dict[str, Any]] = {
        "none": {},
        "masked": {"grammar": grammar},
        "unmasked": {"grammar": grammar, "mask_drafts": False},
    }
    made: dict[str, list[Answer]] = {name: [] for name in variants}
    answer(bench, prompt, GREEDY, args.depth, WARM_TOKENS, **variants["masked"])
    for name in [*variants, *reversed(variants)]:
        made[name].append(answer(bench, prompt, GREEDY, args.depth, args.max_tokens, **variants[name]))
    assert len({tuple(one.tokens) for name in ("masked", "unmasked") for one in made[name]}) == 1
    round_ms = {name: median([ms for one in made[name] for ms in one.rounds_ms]) for name in variants}
    processor_ms = {name: median([ms for one in made[name] for ms in one.processor_ms]) for name in variants}
    sample: Sample = {"round_ms": round_ms, "processor_ms": processor_ms}
    for name in ("masked", "unmasked"):
        sampled = [
            answer(bench, prompt, replace(SAMPLED, seed=seed), args.depth, args.max_tokens, **variants[name])
            for seed in range(args.seeds)
        ]
        sample[name] = {
            "share_of_round": 1 - round_ms["none"] / round_ms[name],
            "share_of_processor": 1 - processor_ms["none"] / processor_ms[name],
            "host_ms": median(one.host_ms for one in made[name]),
            "tokens_per_round": made[name][0].tokens_per_round,
            "tokens_per_round_sampled": sum(one.finished.completion_tokens for one in sampled)
            / sum(one.finished.stats.rounds for one in sampled),
            "ms_per_token": round_ms[name] / made[name][0].tokens_per_round,
        }
    return sample


def main() -> None:
    parser = make_parser(__doc__ or "", prompts=3, max_tokens=64)
    parser.add_argument("--depth", type=int, default=3, help="drafts a round")
    parser.add_argument("--seeds", type=int, default=1, help="sampled answers of each prompt")
    args = parser.parse_args()
    journal = Journal("structured", args)
    bench = Workbench(find_pack(args.model), plain=False)
    summary: dict[str, Any] = {}
    model = bench.model
    for structure, (kind, text, prompts) in STRUCTURES.items():
        grammar = compile_grammar(kind, text, model.tokenizer, model.target.vocab_size, model.eos_ids)
        samples = []
        for index, question in enumerate(prompts[: args.prompts]):
            prompt = model.tokenizer.render_chat([{"role": "user", "content": question}])

            def make(prompt: list[int] = prompt, grammar: Grammar = grammar) -> Sample:
                return bench.call(lambda: weigh(bench, prompt, grammar, args))

            samples.append(journal.take(f"{structure} {index}", make))
        summary[structure] = {
            name: {key: round(median(s[name][key] for s in samples), 4) for key in samples[0][name]}
            for name in ("masked", "unmasked")
        }
    report(summary, journal.finish(summary))


if __name__ == "__main__":
    run(main)
