"""Times decoding over the socket: the same prompts, seeds and order that `Tuning.Measure` uses inside the
daemon.

Owns the loop and the clock's readings; the suite and the sums that make rows of them are the daemon's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from mtplx_client.client import Client
from mtplx_client.errors import Internal
from mtplx_client.events import Final, Progress, Sampler, Text
from mtplx_client.generation import GenerateOptions, SamplerOptions
from mtplx_client.measurements import Measurement, Prompt, Run
from mtplx_client.requests import AUTO

WARM_TOKENS = 16
"""Tokens of the untimed answer that each depth gives first, so that no timed run pays for a new shape."""
DEFAULT_TOKENS = 128


@dataclass(frozen=True)
class Plan:
    """What to measure; 0 and empty take the daemon's defaults."""

    model: str
    depths: Sequence[int | str]
    max_tokens: int = DEFAULT_TOKENS
    prompts: int = 0
    suite: str = ""


def measure_over_socket(
    client: Client,
    plan: Plan,
    sampler: SamplerOptions,
    on_progress: Callable[[Progress], None],
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Time every prompt at every depth, interleaved prompt by prompt, and let the daemon make rows of the
    runs.

    Depths that the head does not reach are left out with a note. Raises what the client raises.
    """
    plan = replace(plan, max_tokens=plan.max_tokens or DEFAULT_TOKENS)
    suite = client.suite(plan.suite, prompts=plan.prompts, seed=sampler.get("seed"))
    begin = _answer(client, suite.prompts[0].text, _options(plan, 0, sampler, WARM_TOKENS), clock)
    model, used = begin.final.model, begin.final.sampler
    sampler = _with_rule(sampler, used.acceptance)
    depths, notes = _reachable(client, model, plan.depths)
    for depth in depths:
        tokens = plan.max_tokens if depth == AUTO else WARM_TOKENS
        _answer(client, suite.prompts[0].text, _options(plan, depth, sampler, tokens), clock)
    deepest = max(depths, key=lambda depth: inf if isinstance(depth, str) else depth)
    runs: list[Run] = []
    todo = list(_order(suite.prompts, depths))
    for done, (prompt, depth) in enumerate(todo):
        on_progress(Progress("measure", done, len(todo), "runs"))
        options = _options(plan, depth, sampler, plan.max_tokens, prompt.seed)
        timed = _answer(client, prompt.text, options, clock)
        runs.append(timed.run(prompt.index, depth))
        used = timed.final.sampler if depth == deepest else used
    on_progress(Progress("measure", len(todo), len(todo), "runs"))
    found = client.summarise(
        model, runs, _without_seed(used, sampler), suite=suite.suite, max_tokens=plan.max_tokens
    )
    return replace(found, notes=(*notes, *found.notes))


@dataclass(frozen=True)
class _Timed:
    """One answer with the times of its first and last token."""

    tokens: int
    first_s: float
    last_s: float
    final: Final

    def run(self, prompt: int, depth: int | str) -> Run:
        fixed = 0 if isinstance(depth, str) else depth
        times = self.first_s, self.last_s
        return Run(prompt, fixed, self.tokens, *times, self.final.stats, auto=depth == AUTO)


def _options(
    plan: Plan, depth: int | str, sampler: SamplerOptions, max_tokens: int, seed: int | None = None
) -> GenerateOptions:
    """What an answer asks for: measuring is for packs that nobody verified too, and for those without a head. Beside
    other depths plain decoding leaves the draft's own settings out: it has none."""
    options = GenerateOptions(
        model=plan.model, depth=depth, max_tokens=max_tokens, ignore_eos=True, force=True, plain=depth == 0
    )
    options.update(sampler)  # type: ignore[typeddict-item]  # a part of these options
    options["seed"] = seed
    if depth == 0 and any(plan.depths):
        options["draft_temperature"] = options["draft_top_k"] = None
    return options


def _with_rule(sampler: SamplerOptions, in_force: str) -> SamplerOptions:
    """The sampler with the rule that an answer without a seed had: a seed of its own would choose another."""
    if in_force == "greedy" or sampler.get("acceptance"):
        return sampler
    return {**sampler, "acceptance": in_force}


def _answer(client: Client, text: str, options: GenerateOptions, clock: Callable[[], float]) -> _Timed:
    tokens, first, last = 0, 0.0, 0.0
    begin = clock()
    for event in client.generate(text, **options):
        if isinstance(event, Text) and event.tokens:
            last = clock() - begin
            first = first if tokens else last
            tokens += len(event.tokens)
        elif isinstance(event, Final):
            if event.finish_reason != "length":
                raise Internal("a run ended early", event.stop_origin, event.message or "measure again")
            return _Timed(tokens, first, last, event)
    raise Internal("a run had no end", None, "see `mtplx logs`")


def _order(prompts: Sequence[Prompt], depths: Sequence[int | str]) -> Iterator[tuple[Prompt, int | str]]:
    """Prompt by prompt; each begins with another depth, so that none always runs on a cooler machine."""
    for at, prompt in enumerate(prompts):
        turn = at % len(depths)
        for depth in (*depths[turn:], *depths[:turn]):
            yield prompt, depth


def _reachable(client: Client, model: str, depths: Sequence[int | str]) -> tuple[list[int | str], list[str]]:
    """Those that this head can draft, and a sentence for each that it cannot."""
    deepest = next((resident.depth_max for resident in client.ps() if resident.name == model), 0)
    reach = {depth: (1 if depth == AUTO else int(depth)) <= deepest for depth in depths}
    notes = [f"depth {depth} left out: this head reaches {deepest}" for depth in depths if not reach[depth]]
    return [depth for depth in depths if reach[depth]], notes


def _without_seed(used: Sampler, asked: SamplerOptions) -> Sampler:
    """The sampler of all runs: each prompt had a seed of its own, so only the asked one is told."""
    return replace(used, seed=asked.get("seed") or 0)
