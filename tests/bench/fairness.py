"""Weighs how evenly clients are served: eight with one prompt at temperature 0, and one quiet client beside a flood.

    python tests/bench/fairness.py --clients 8 --repeats 3

Rounds are compared when the first of the eight has its whole text. Of the quiet client its wait is told, over its wait
alone and in requests of the flood that began meanwhile; while rows are free these are in service before it asks.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median
from typing import Any

from crowd import Heard, Stage, check, listen, staged
from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.tune.prompts import load_suite

ROUNDS_APART, SLOWEST = 2, 1.15
"""What must be reached: rounds granted differ by this much at most, and the slowest takes so much longer."""
FLOOD_TOKENS = 12
QUIET = 3
"""Requests of the quiet client, one after the other."""
GREEDY = {"temperature": 0.0, "ignore_eos": True}


def compare_equals(stage: Stage, turn: int, args: Any) -> Sample:
    """As many clients as asked for with one prompt and one setting."""
    [prompt] = load_suite(args.suite, turn + 1).prompts[turn:]
    asks = [stage.ask(prompt.text, max_tokens=args.max_tokens, depth=args.depth, **GREEDY)] * args.clients
    heard = [check(one) for one in stage.together(asks)]
    began = min(one.asked for one in heard)
    first = min(one.times[-1] for one in heard)
    took = [one.times[-1] - one.asked for one in heard]
    granted = [sum(at <= first for at in one.times) for one in heard]
    return {
        "rounds": granted,
        "rounds_apart": max(granted) - min(granted),
        "slowest_over_fastest": max(took) / min(took),
        "texts": len({tuple(one.tokens) for one in heard}),
        "began_apart_s": max(one.times[0] for one in heard) - min(one.times[0] for one in heard),
        "took_s": max(one.times[-1] for one in heard) - began,
    }


def meet_flood(stage: Stage, turn: int, args: Any) -> Sample:
    """One client sends `--flood` requests at once; another asks a few times meanwhile, one after the other."""
    texts = [prompt.text for prompt in load_suite("mixed", args.flood).prompts]
    settings = {"max_tokens": FLOOD_TOKENS, "depth": args.depth, **GREEDY}
    ask = stage.ask(f"Quietly, for the {turn}th time: {texts[0]}", **settings)
    alone = check(stage.alone(ask))

    async def work() -> tuple[list[Heard], list[Heard]]:
        began = asyncio.Event()

        async with stage.clients(2) as [loud, calm]:
            flood = [
                asyncio.create_task(listen(loud, stage.ask(text, **settings), on_text=lambda _: began.set()))
                for text in texts
            ]
            await asyncio.wait([asyncio.create_task(began.wait()), *flood], return_when="FIRST_COMPLETED")
            quiet = [await listen(calm, ask) for _ in range(QUIET)]
            return await asyncio.gather(*flood), quiet

    flood, quiet = stage.run(work())
    served = [one for one in flood if one.error is None]
    overtaken = [
        sum(one.asked < other.times[0] < one.times[0] for other in served) for one in map(check, quiet)
    ]
    return {
        "overtaken": max(overtaken),
        "quiet_ttft_s": median(one.ttft for one in quiet),
        "alone_ttft_s": alone.ttft,
        "flood_served": len(served),
        "flood_refused": sorted({type(one.error).__name__ for one in flood if one.error is not None}),
    }


def summarise(equals: list[Sample], floods: list[Sample]) -> dict[str, Any]:
    apart = max(sample["rounds_apart"] for sample in equals)
    slowest = [sample["slowest_over_fastest"] for sample in equals]
    overtaken = max(sample["overtaken"] for sample in floods)
    return {
        "rounds_apart": apart,
        "slowest_over_fastest": max(slowest),
        "slowest_over_fastest_median": median(slowest),
        "texts": max(sample["texts"] for sample in equals),
        "overtaken": overtaken,
        "quiet_ttft_over_alone": median(sample["quiet_ttft_s"] / sample["alone_ttft_s"] for sample in floods),
        "passed": apart <= ROUNDS_APART and max(slowest) <= SLOWEST,
    }


def main() -> None:
    parser = make_parser(__doc__ or "", max_tokens=64, suite="chat")
    parser.add_argument("--clients", type=int, default=8, help="clients with one prompt")
    parser.add_argument("--flood", type=int, default=40, help="requests that one client sends at once")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is weighed")
    parser.add_argument("--depth", type=int, default=1, help="depth of all requests")
    args = parser.parse_args()
    journal = Journal("fairness", args)
    with staged(Path(find_pack(args.model).path)) as stage:
        compare_equals(stage, args.repeats, args)
        turns = range(args.repeats)
        equals = [
            journal.take(f"equals {turn}", lambda turn=turn: compare_equals(stage, turn, args))
            for turn in turns
        ]
        floods = [
            journal.take(f"flood {turn}", lambda turn=turn: meet_flood(stage, turn, args)) for turn in turns
        ]
    summary = summarise(equals, floods)
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
