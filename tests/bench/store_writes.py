"""Weighs what the store's writing costs those who decode meanwhile: crowds that keep beside crowds that do not.

    python tests/bench/store_writes.py --clients 8 --pairs 12

A crowd's clients ask for prompts that nobody asked for, several one after the other, so that some read and some end
while others decode. Crowds come in pairs of the same kind, one with the store on and one with it off, which of them
first alternating. Weighed are the gaps between neighbouring events of a text: their median and their 99th percentile,
pair by pair and of all gaps together; `rounds` are those gaps in which nobody's prompt was read.
"""

from __future__ import annotations

import asyncio
import random
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from crowd import Ask, Heard, Stage, check, listen, staged
from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplx_client import AsyncClient

ARMS = ON, OFF = "on", "off"
IDS = range(100, 280)
"""What prompts are drawn from: ordinary tokens of every vocabulary."""
MOST = 1.10
SETTLE_LOOKS, SETTLE_S = 600, 0.1
SETTINGS = {"MTPLXD_STORE_FREE_FLOOR": "0", "MTPLXD_PREFIX_CACHE": "256M"}


def make_asks(stage: Stage, args: Any, seed: str, arm: str) -> list[list[Ask]]:
    """Each client's requests, one after the other: fresh prompts, answers of unlike lengths."""
    draw = random.Random(f"{seed} {arm}")
    lengths = random.Random(seed)  # the same in both arms
    return [
        [
            stage.ask(
                None,
                tokens=[draw.choice(IDS) for _ in range(lengths.randint(args.shortest, args.longest))],
                max_tokens=lengths.randint(args.max_tokens // 2, args.max_tokens),
                temperature=0.0,
                ignore_eos=True,
                depth=args.depth if args.depth == "auto" else int(args.depth),
                store=arm,
            )
            for _ in range(args.turns)
        ]
        for _ in range(args.clients)
    ]


async def play(stage: Stage, asks: list[list[Ask]]) -> list[Heard]:
    """All clients at once, each its requests in turn."""

    async def one(client: AsyncClient, own: list[Ask]) -> list[Heard]:
        return [check(await listen(client, ask)) for ask in own]

    async with stage.clients(len(asks)) as clients:
        heard = await asyncio.gather(*map(one, clients, asks))
    return list(chain.from_iterable(heard))


async def settle(stage: Stage, calm_s: float) -> int:
    """Waits until nothing has got to the disk for `calm_s`, what is kept late and packed included; the bytes so far."""
    async with stage.client() as client:
        latest, calm = -1, 0
        for _ in range(SETTLE_LOOKS):
            stats = await client.cache_stats()
            calm = calm + 1 if not stats.waiting and stats.bytes_written == latest else 0
            latest = stats.bytes_written
            if calm * SETTLE_S >= calm_s:
                break
            await asyncio.sleep(SETTLE_S)
        return latest


def gaps_of(heard: list[Heard]) -> tuple[list[float], list[float]]:
    """All gaps in seconds, and those in which no prompt was being read."""
    reading = [(one.asked, one.times[0]) for one in heard]
    found, calm = [], []
    for one in heard:
        for before, after in zip(one.times, one.times[1:], strict=False):
            found.append(after - before)
            if not any(begin < after and end > before for begin, end in reading):
                calm.append(after - before)
    return found, calm


def crowd(stage: Stage, args: Any, seed: str, arm: str) -> Sample:
    """One crowd's gaps in milliseconds, and how much of it got to the disk while it ran and after."""
    before = stage.run(settle(stage, args.calm))
    heard = stage.run(play(stage, make_asks(stage, args, seed, arm)))
    written = stage.run(_written(stage)) - before
    gaps, calm = gaps_of(heard)
    return {
        "gaps_ms": [round(1e3 * gap, 2) for gap in gaps],
        "rounds_ms": [round(1e3 * gap, 2) for gap in calm],
        "mb_written": round(written / 1e6, 2),
        "mb_in_all": round((stage.run(settle(stage, args.calm)) - before) / 1e6, 2),
    }


async def _written(stage: Stage) -> int:
    async with stage.client() as client:
        return (await client.cache_stats()).bytes_written


def compare(pairs: list[dict[str, Sample]], of: str) -> dict[str, float]:
    """On over off: the median and the 99th percentile, of the median pair and of all gaps together."""

    def ratio(points: dict[str, Sample], percent: float) -> float:
        on, off = (float(np.percentile(points[arm][of], percent)) for arm in ARMS)
        return on / off

    merged = {arm: {of: [gap for pair in pairs for gap in pair[arm][of]]} for arm in ARMS}
    full = [pair for pair in pairs if all(pair[arm][of] for arm in ARMS)]
    if not full:
        return {}
    return {
        "median_ratio": round(ratio(merged, 50), 4),
        "p99_ratio": round(ratio(merged, 99), 4),
        "median_ratio_of_pairs": round(median(ratio(pair, 50) for pair in full), 4),
        "p99_ratio_of_pairs": round(median(ratio(pair, 99) for pair in full), 4),
        "p99_on_ms": round(float(np.percentile(merged[ON][of], 99)), 2),
        "p99_off_ms": round(float(np.percentile(merged[OFF][of], 99)), 2),
        "gaps": len(merged[ON][of]),
    }


def main() -> None:
    parser = make_parser(__doc__ or "", max_tokens=48)
    parser.add_argument("--clients", type=int, default=8, help="clients at a time")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of crowds")
    parser.add_argument("--turns", type=int, default=2, help="requests of a client, one after the other")
    parser.add_argument("--shortest", type=int, default=64, help="tokens of a prompt at least")
    parser.add_argument("--longest", type=int, default=192, help="tokens of a prompt at most")
    parser.add_argument(
        "--calm", type=float, default=3.0, help="seconds without a write before a crowd starts"
    )
    parser.add_argument("--depth", default="auto", help="drafts a round")
    args = parser.parse_args()
    journal = Journal("store_writes", args)
    pairs: list[dict[str, Sample]] = []
    with staged(Path(find_pack(args.model).path), **SETTINGS) as stage:
        for arm in ARMS:
            crowd(stage, args, "warm", arm)  # shapes are new to the machine once
        for number in range(args.pairs):
            order = ARMS if number % 2 == 0 else ARMS[::-1]
            pair = {
                arm: journal.take(
                    f"pair {number} {arm}",
                    lambda number=number, arm=arm: crowd(stage, args, str(number), arm),  # type: ignore[misc]
                )
                for arm in order
            }
            pairs.append(pair)
            told = {name: compare([pair], name).get("p99_ratio") for name in ("gaps_ms", "rounds_ms")}
            print(f"pair {number}: {told}  {pair[ON]['mb_written']} MB written", flush=True)
    all_gaps = compare(pairs, "gaps_ms")
    summary = {
        "all_gaps": all_gaps,
        "rounds": compare(pairs, "rounds_ms"),
        "mb_written_a_crowd": round(median(pair[ON]["mb_written"] for pair in pairs), 2),
        "passed": all_gaps["p99_ratio"] <= MOST,
    }
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
