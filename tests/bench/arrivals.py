"""Times what a long prompt costs others: a running stream's longest pause, a short prompt's wait behind it.

    python tests/bench/arrivals.py --repeats 3 --long 4000

Each repeat: a short prompt alone; then a stream, a long prompt, and once that is in its prefill another short prompt.
No two prompts of a run begin alike, so none finds its beginning in memory.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from crowd import Ask, Heard, Stage, check, listen, staged
from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplx_client.events import Progress
from mtplxd.tune.prompts import load_suite

CALM_EVENTS = 24
"""Of the stream before the long prompt comes; the first of them are left out of its median round."""
WARM_EVENTS = 4
WARM_LONG = 300
"""Tokens of the long prompt of an untimed repeat, which meets the shapes that the others run in."""
BEHIND_S, GAP_ROUNDS = 1.5, 4.0
"""What must be reached: the short prompt's delay, and the stream's longest pause in rounds."""
SAMPLER = {"temperature": 0.6, "top_p": 0.95, "ignore_eos": True}


@dataclass
class Trio:
    """The three requests of one repeat."""

    stream: Ask
    long: Ask
    short: Ask

    async def play(self, stage: Stage) -> tuple[Heard, Heard, Heard]:
        """What each heard; the stream ends when the long prompt has its answer."""
        calm, filling, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        def on_text(heard: Heard) -> bool:
            if len(heard.times) >= CALM_EVENTS:
                calm.set()
            return done.is_set()

        def on_progress(event: Progress) -> None:
            if event.stage == "prefill":
                filling.set()

        async with stage.clients(3) as [one, two, three]:
            stream = asyncio.create_task(listen(one, self.stream, on_text=on_text))
            await first_of(calm.wait(), stream)
            long = asyncio.create_task(listen(two, self.long, on_progress=on_progress))
            await first_of(filling.wait(), long)
            short = await listen(three, self.short)
            heard = await long
            done.set()
            return check_left(await stream), check(heard), check(short)


async def first_of(event: Any, other: asyncio.Task[Heard]) -> None:
    """Waits for the event, or for a request that ended without it."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait([waiting, other], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def check_left(heard: Heard) -> Heard:
    """The same, where this side left or the text came to its end."""
    return heard if heard.error is None and heard.final is None else check(heard)


def play(stage: Stage, turn: int, args: Any, long: int) -> Sample:
    """One repeat with a prompt of `long` tokens, in seconds and rounds."""
    texts = [prompt.text for prompt in load_suite(args.suite, 3).prompts]
    long_ids = make_long(long, turn)
    depth = args.depth if args.depth == "auto" else int(args.depth)
    common = {**SAMPLER, "depth": depth, "seed": turn}

    def ask(text: str, tokens: int, mark: str) -> Ask:
        return stage.ask(f"{mark} {turn}. {text}", raw=True, max_tokens=tokens, **common)

    alone = check(stage.alone(ask(texts[0], args.max_tokens, "Before")))
    trio = Trio(
        stream=ask(texts[1], args.stream_tokens, "Stream"),
        long=stage.ask(None, tokens=long_ids, max_tokens=2, **common),
        short=ask(texts[0], args.max_tokens, "Behind"),
    )
    stream, filled, short = stage.run(trio.play(stage))
    before = [gap for gap, at in zip(stream.gaps, stream.times[1:], strict=True) if at <= filled.asked]
    during = stream.gaps_between(filled.asked, filled.times[0])
    round_s = median(before[WARM_EVENTS:] or before)
    return {
        "alone_ttft_s": alone.ttft,
        "short_ttft_s": short.ttft,
        "behind_s": short.ttft - alone.ttft,
        "long_ttft_s": filled.ttft,
        "long_tokens": len(long_ids),
        "overtook": short.times[0] < filled.times[0],
        "round_s": round_s,
        "rounds_during": len(during),
        "longest_gap_s": max(during, default=0.0),
        "gap_over_round": max(during, default=0.0) / round_s,
        "median_gap_over_round": median(during) / round_s if during else 0.0,
    }


def make_long(count: int, turn: int) -> list[int]:
    """Token ids that mean nothing, others in each repeat from the first on; below every vocabulary's end."""
    return [32 + (7 * at * (turn + 1) + 3 * turn + at // 64) % 200 for at in range(count)]


def summarise(samples: list[Sample]) -> dict[str, Any]:
    behind = [sample["behind_s"] for sample in samples]
    gaps = [sample["gap_over_round"] for sample in samples]
    return {
        "behind_s": max(behind),
        "behind_median_s": median(behind),
        "alone_ttft_s": median(sample["alone_ttft_s"] for sample in samples),
        "long_ttft_s": median(sample["long_ttft_s"] for sample in samples),
        "gap_over_round": max(gaps),
        "gap_over_round_median": median(gaps),
        "round_ms": 1e3 * median(sample["round_s"] for sample in samples),
        "passed": max(behind) <= BEHIND_S and max(gaps) <= GAP_ROUNDS,
    }


def main() -> None:
    parser = make_parser(__doc__ or "", max_tokens=8, suite="chat")
    parser.add_argument("--repeats", type=int, default=3, help="how often the three meet")
    parser.add_argument("--long", type=int, default=4000, help="tokens of the long prompt")
    parser.add_argument("--stream-tokens", type=int, default=1500, help="most tokens of the stream")
    parser.add_argument("--depth", default="auto", help="depth of all requests")
    args = parser.parse_args()
    journal = Journal("arrivals", args)
    with staged(Path(find_pack(args.model).path)) as stage:
        play(stage, args.repeats, args, min(args.long, WARM_LONG))
        samples = [
            journal.take(str(turn), lambda turn=turn: play(stage, turn, args, args.long))
            for turn in range(args.repeats)
        ]
    summary = summarise(samples)
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
