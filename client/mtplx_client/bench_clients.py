"""Times clients at the same time: waves of answers, each client with a connection of its own, in one process.

Owns who asks what and when, and the clock's readings; `client_rows` makes rows of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from mtplx_client.aio import AsyncClient
from mtplx_client.client_rows import ClientsRow, Kind, TimedAnswer, Wave, rows
from mtplx_client.errors import Internal
from mtplx_client.events import Final, Progress, Sampler, Text
from mtplx_client.generation import GenerateOptions, SamplerOptions
from mtplx_client.measurements import Suite

WARM_TOKENS = 16
"""Tokens of the untimed wave that each number of clients begins with: no timed one pays for a new shape."""


@dataclass(frozen=True)
class ClientsPlan:
    """What to measure. `depth` None is the model's own; `plain` adds that many clients' plain decoding."""

    model: str
    widths: Sequence[int]
    depth: int | str | None = None
    max_tokens: int = 96
    suite: str = ""
    repeats: int = 2
    plain: bool = True


@dataclass(frozen=True)
class ClientsMeasurement:
    """Rows a number of clients, with all that is needed to judge them."""

    rows: tuple[ClientsRow, ...]
    waves: tuple[Wave, ...]
    model: str
    sampler: Sampler
    suite: str
    max_tokens: int
    depth: int | str | None


async def measure_clients(
    socket: Path,
    plan: ClientsPlan,
    sampler: SamplerOptions,
    on_progress: Callable[[Progress], None],
    timeout: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> ClientsMeasurement:
    """Run every wave, interleaved, and sum them up. Cancelling it cancels every answer. Raises what clients raise."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(AsyncClient(socket, timeout=timeout))
            for _ in range(max(plan.widths))
        ]
        suite = await clients[0].suite(plan.suite, seed=sampler.get("seed"))
        crowd = _Crowd(clients, plan, sampler, suite, clock)
        await crowd.settle_rule()
        todo = list(_order(plan))
        waves: list[Wave] = []
        for done, (kind, width, repeat) in enumerate(todo):
            on_progress(Progress("measure", done, len(todo), "waves"))
            if repeat == 0:
                await crowd.play(kind, width, repeat, WARM_TOKENS)
            waves.append(await crowd.play(kind, width, repeat, plan.max_tokens))
        on_progress(Progress("measure", len(todo), len(todo), "waves"))
        return ClientsMeasurement(
            rows(waves), tuple(waves), crowd.model, crowd.used, suite.suite, plan.max_tokens, plan.depth
        )


def _order(plan: ClientsPlan) -> Iterator[tuple[Kind, int, int]]:
    """What is compared runs beside each other, and each repeat begins with another of them."""
    kinds: tuple[Kind, ...] = ("plain_one", "drafted", "plain") if plan.plain else ("plain_one", "drafted")
    for repeat in range(plan.repeats):
        turn = repeat % len(kinds)
        for width in plan.widths:
            for kind in (*kinds[turn:], *kinds[:turn]):
                yield kind, width, repeat


@dataclass
class _Crowd:
    """Connected clients and what they ask."""

    clients: Sequence[AsyncClient]
    plan: ClientsPlan
    sampler: SamplerOptions
    suite: Suite
    clock: Callable[[], float]
    model: str = ""
    used: Sampler = field(default_factory=Sampler)

    async def settle_rule(self) -> None:
        """One short answer tells the model, and the rule that answers without a seed have: later ones keep it."""
        options = self._options("plain_one", WARM_TOKENS, None)
        final = (await self._ask(self.clients[0], self.suite.prompts[0].text, options))[1]
        self.model, self.used = final.model, final.sampler
        if final.sampler.acceptance != "greedy" and not self.sampler.get("acceptance"):
            self.sampler = {**self.sampler, "acceptance": final.sampler.acceptance}

    async def play(self, kind: Kind, width: int, repeat: int, max_tokens: int) -> Wave:
        """One wave: everybody asks at the same moment, each a prompt of its own."""
        clients = self.clients[: 1 if kind == "plain_one" else width]
        prompts = self.suite.prompts
        asked = [prompts[(repeat * width + place) % len(prompts)] for place in range(len(clients))]
        tasks = [
            asyncio.ensure_future(
                self._ask(client, prompt.text, self._options(kind, max_tokens, prompt.seed + repeat + place))
            )
            for place, (client, prompt) in enumerate(zip(clients, asked, strict=True))
        ]
        try:
            found = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        if kind == "drafted":
            self.used = found[0][1].sampler
        return Wave(kind, width, repeat, tuple(answer for answer, _ in found))

    def _options(self, kind: Kind, max_tokens: int, seed: int | None) -> GenerateOptions:
        """Measuring is for packs that nobody verified too, and goes on past the end of a text."""
        plain = kind != "drafted"
        depth = 0 if plain else self.plan.depth
        options = GenerateOptions(
            model=self.plan.model,
            max_tokens=max_tokens,
            ignore_eos=True,
            force=True,
            plain=plain,
            depth=depth,
        )
        options.update(self.sampler)  # type: ignore[typeddict-item]  # a part of these options
        options["seed"] = None if seed is None else seed % 2**64
        if plain:
            options["draft_temperature"] = options["draft_top_k"] = None
        return options

    async def _ask(
        self, client: AsyncClient, text: str, options: GenerateOptions
    ) -> tuple[TimedAnswer, Final]:
        begin, times, tokens = self.clock(), [], 0
        async for event in client.generate(text, **options):
            if isinstance(event, Text) and event.tokens:
                times.append(self.clock())
                tokens += len(event.tokens)
            elif isinstance(event, Final):
                if event.finish_reason != "length":
                    raise Internal("a run ended early", event.stop_origin, event.message or "measure again")
                rounds, cached = event.stats.rounds, event.usage.cached_tokens
                return TimedAnswer(begin, tuple(times), tokens, rounds, cached), event
        raise Internal("a run had no end", None, "see `mtplx logs`")
