"""Compares texts decoded among others with the same texts decoded alone: 64 mixed requests, eight clients at a time.

    python tests/bench/together.py --count 64 --clients 8

A client that has its answer asks the next question at once, so rows join and leave while others go on. Reproducible
texts must be equal to the last token; greedy ones and those of a seed may part where a near-tie decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crowd import Ask, Stage, listen, note, staged
from harness import Journal, Sample, find_pack, make_parser, report, run
from mixed_asks import COUPLED, GREEDY, REPRODUCIBLE, SAMPLED, Mixed, mix
from mtplx_client import AsyncClient
from partings import Judge, compare_texts, ends_differ

GROUP = 32
"""Requests of one uninterrupted go; a resumed run repeats the go that was cut."""
LOOK_S = 0.1


class Table:
    """The requests of a run and what was heard of each."""

    def __init__(self, stage: Stage, asks: Sequence[Mixed]) -> None:
        self._stage, self.asks = stage, asks

    def alone(self, at: int) -> Sample:
        """One request while nobody else asks."""
        return note(self._stage.alone(self._ask(at)))

    def together(self, places: Sequence[int], clients: int) -> Sample:
        """Those requests, so many clients at a time; what was heard of each, and the most that ran at once."""
        return self._stage.run(self._share(places, clients))

    def _ask(self, at: int) -> Ask:
        mixed = self.asks[at]
        return self._stage.ask(mixed.prompt, **mixed.options)

    async def _share(self, places: Sequence[int], count: int) -> Sample:
        left, heard, most = deque(places), dict[str, Sample](), 0

        async def work(client: AsyncClient) -> None:
            while left:
                at = left.popleft()
                heard[str(at)] = note(await listen(client, self._ask(at)))

        async def look(client: AsyncClient) -> None:
            nonlocal most
            while True:
                most = max(most, (await client.status()).queue.running)
                await asyncio.sleep(LOOK_S)

        async with self._stage.clients(count + 1) as [watcher, *clients]:
            looking = asyncio.create_task(look(watcher))
            await asyncio.gather(*map(work, clients))
            looking.cancel()
        return {"heard": heard, "most_running": most}


def summarise(
    asks: Sequence[Mixed], alone: list[Sample], among: list[Sample], judge: Judge
) -> dict[str, Any]:
    """Counts by promise; `passed` where every text is what it was alone."""
    pairs = {
        promise: [
            (ask, alone[at]["tokens"], among[at]["tokens"])
            for at, ask in enumerate(asks)
            if ask.promise == promise
        ]
        for promise in (GREEDY, COUPLED, REPRODUCIBLE, SAMPLED)
    }
    summary: dict[str, Any] = {}
    for promise in (GREEDY, COUPLED):
        summary |= compare_texts(promise, pairs[promise], judge)
    exact = pairs[REPRODUCIBLE]
    summary["reproducible_texts"] = len(exact)
    summary["reproducible_differences"] = sum(one != other for _, one, other in exact)
    summary["sampled_texts"] = len(pairs[SAMPLED])
    summary["sampled_equal"] = sum(one == other for _, one, other in pairs[SAMPLED])
    summary["cut_short"] = sum(
        ends_differ(one, other) for name in (GREEDY, COUPLED) for _, one, other in pairs[name]
    )
    ended = {"length", "stop"}
    summary["failed"] = sorted(
        f"{at}: {found['outcome']}"
        for at, both in enumerate(zip(alone, among, strict=True))
        for found in both
        if found["outcome"] not in ended
    )
    summary["noise"] = judge.noise
    wrong = ("greedy_divergences", "coupled_divergences", "reproducible_differences", "cut_short", "failed")
    summary["passed"] = not any(summary[name] for name in wrong)
    return summary


def main() -> None:
    parser = make_parser(__doc__ or "", max_tokens=56)
    parser.add_argument("--count", type=int, default=64, help="requests")
    parser.add_argument("--clients", type=int, default=8, help="how many ask at a time")
    args = parser.parse_args()
    pack = find_pack(args.model)
    journal = Journal("together", args)
    asks = mix(args.count, args.max_tokens)
    with staged(Path(pack.path)) as stage:
        table = Table(stage, asks)
        alone = [journal.take(f"alone {at}", lambda at=at: table.alone(at)) for at in range(len(asks))]
        among: dict[str, Sample] = {}
        most = []
        for begin in range(0, len(asks), GROUP):
            places = range(begin, min(begin + GROUP, len(asks)))
            made = journal.take(f"from {begin}", lambda places=places: table.together(places, args.clients))
            among |= made["heard"]
            most.append(made["most_running"])
    judge = Judge(pack, [(ask, found["tokens"]) for ask, found in zip(asks, alone, strict=True)])
    summary = summarise(asks, alone, [among[str(at)] for at in range(len(asks))], judge)
    summary["most_running"] = max(most)
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
