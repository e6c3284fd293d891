"""Soaks a daemon: eight clients that complete, cancel, leave, hang up, run out of time, ask badly and never read.

    python tests/bench/soak.py --minutes 30 --clients 8

Every text that comes back, whole or cut, is compared with the same request's text alone, taken first. At the end no
row may be left, memory must have stayed flat from where what is kept of prompts had reached its bound, and the log must
hold no traceback. Ctrl-C ends it early, with a result.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from crowd import Stage, check, note, staged
from harness import Journal, Sample, find_pack, make_parser, report, run
from mixed_asks import REPRODUCIBLE, SAMPLED, Mixed, mix
from mtplx_client.replies import Status
from mtplxd.tune.identity import first_difference
from partings import Judge
from soak_clients import Book, Record, SoakClient, keep_watch
from soak_memory import FILL_MOST, fill_prefixes, weigh_memory

FLAT = 0.03
LEFT_S = 20.0
"""How long a row may take to leave once all clients have gone."""
WATCH_S = 1.0
TELL_S = 60.0


async def soak(stage: Stage, asks: list[Mixed], args: Any) -> tuple[Book, list[dict[str, float]], Status]:
    """All clients for the time given, or until a signal; the book, the watch, and the status when all had gone."""
    book, watched, stop = Book(), list[dict[str, float]](), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    print(f"soaking for {args.minutes:g} minutes; Ctrl-C ends it early", flush=True)
    end = time.monotonic() + 60 * args.minutes
    clients = [
        SoakClient(stage, asks, book, random.Random(f"{args.seed} {at}")) for at in range(args.clients)
    ]
    async with stage.client() as watcher:
        watching = asyncio.create_task(keep_watch(watcher, watched, WATCH_S))
        telling = asyncio.create_task(tell(book, watched))
        await asyncio.gather(
            *(client.live(lambda: stop.is_set() or time.monotonic() >= end) for client in clients)
        )
        watching.cancel()
        telling.cancel()
        left = await wait_empty(watcher)
    return book, watched, left


async def tell(book: Book, watched: list[dict[str, float]]) -> None:
    """A line a minute."""
    while True:
        await asyncio.sleep(TELL_S)
        last = watched[-1]
        print(
            f"{last['s'] / 60:5.1f} min  {len(book.records)} requests  {len(book.faults)} faults  "
            f"{last['rows']} rows  {last['rss'] / 1e6:.0f} MB",
            flush=True,
        )


async def wait_empty(client: Any) -> Status:
    """The status once nothing is in flight, or after `LEFT_S`."""
    end = time.monotonic() + LEFT_S
    while True:
        status: Status = await client.status()
        if not status.in_flight or time.monotonic() >= end:
            return status
        await asyncio.sleep(0.05)


def count_left(status: Status) -> int:
    """Rows, requests and uses of the model that nobody waits for any more."""
    engine = status.engine
    held = engine.rows + engine.prefilling + engine.set_aside
    return held + len(status.in_flight) + sum(model.in_use for model in status.models)


def compare(record: Record, ask: Mixed, alone: list[int]) -> str:
    """`same`, `parts` where a near-tie may explain it, else what is wrong with a text."""
    if ask.promise == SAMPLED or (record.choice and ask.options["temperature"]):
        return "same"  # nothing was promised, or the choice has a seed of its own
    made = list(record.tokens)
    if made == alone or (not record.whole and made == alone[: len(made)]):
        return "same"
    if ask.promise == REPRODUCIBLE:
        return "a reproducible text differs"
    if first_difference(alone, made) is None:
        return "a text ends elsewhere"
    return "parts"


def check_texts(book: Book, asks: list[Mixed], alone: list[list[int]], judge: Judge) -> dict[str, Any]:
    """Counts of texts by what came of them; a parting that occurs often is judged once."""
    found: Counter[str] = Counter()
    wrong: list[str] = []
    verdicts: dict[tuple[int, tuple[int, ...]], bool] = {}
    for record in book.records:
        ask, lone = asks[record.at], alone[record.at]
        verdict = compare(record, ask, lone) if record.tokens else "same"
        if verdict == "parts":
            place = first_difference(lone, record.tokens) or 0
            key = (record.at, record.tokens[: place + 1])
            if key not in verdicts:
                verdicts[key] = judge.judge(ask, lone, record.tokens).near_tie
            verdict = "near-tie" if verdicts[key] else "a text parts by more than rounding explains"
        found[verdict] += 1
        if verdict not in ("same", "near-tie"):
            wrong.append(f"{record.kind}, request {record.at} ({ask.promise}): {verdict}")
    return {
        "texts": sum(bool(record.tokens) for record in book.records),
        "whole_texts": sum(record.whole for record in book.records),
        "near_ties": found["near-tie"],
        "wrong_texts": wrong,
    }


def summarise(
    book: Book, watched: list[dict[str, float]], left: Status, texts: dict[str, Any]
) -> dict[str, Any]:
    ends = Counter(f"{record.kind}: {record.outcome or 'left'}" for record in book.records)
    odd = sorted({f"{one.kind} ended as {one.outcome or 'left'}" for one in book.records if not one.right})
    late = sum(one.rounds > one.allowed for one in book.cancelled)
    return {
        "minutes": round(watched[-1]["s"] / 60, 2) if watched else 0.0,
        "requests": len(book.records),
        **texts,
        "ends": dict(sorted(ends.items())),
        "wrong_ends": odd,
        "faults": book.faults,
        "cancelled": len(book.cancelled),
        "most_rounds_after_cancel": max((one.rounds for one in book.cancelled), default=0),
        "cancelled_late": late,
        "most_rows": max((one["rows"] for one in watched), default=0),
        "left_over": count_left(left),
        **weigh_memory(watched),
    }


def end_daemon(stage: Stage) -> dict[str, Any]:
    """Its exit, what it said on stderr, and how many tracebacks are in its log, with the first."""
    code, _, said = stage.daemon.stop()
    before, *tracebacks = stage.daemon.log().split("Traceback")
    first = before[-300:] + "Traceback" + tracebacks[0][:3000] if tracebacks else ""
    return {"exit": code, "stderr": said[-500:], "tracebacks": len(tracebacks), "first_traceback": first}


def main() -> None:
    parser = make_parser(__doc__ or "", max_tokens=48)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long; the full count is 30")
    parser.add_argument("--clients", type=int, default=8, help="clients at a time")
    parser.add_argument("--table", type=int, default=32, help="requests whose lone texts are known")
    parser.add_argument(
        "--fill", type=int, default=FILL_MOST, help="prompts at most that fill what is kept of them"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what the clients do")
    args = parser.parse_args()
    pack = find_pack(args.model)
    journal = Journal("soak", args)
    asks = mix(args.table, args.max_tokens)
    with staged(Path(pack.path)) as stage:

        def alone(at: int) -> Sample:
            return note(check(stage.alone(stage.ask(asks[at].prompt, **asks[at].options))))

        lone = [journal.take(f"alone {at}", lambda at=at: alone(at))["tokens"] for at in range(len(asks))]
        full = stage.run(fill_prefixes(stage, pack.context, args.fill))
        book, watched, left = stage.run(soak(stage, asks, args))
        ending = end_daemon(stage)
    judge = Judge(pack, list(zip(asks, lone, strict=True)))
    summary = summarise(book, watched, left, check_texts(book, asks, lone, judge)) | ending
    summary["noise"], summary["prefixes_full"] = judge.noise, full
    bad = (
        "wrong_texts",
        "wrong_ends",
        "faults",
        "cancelled_late",
        "left_over",
        "exit",
        "stderr",
        "tracebacks",
    )
    summary["flat"] = abs(summary["rss_drift"]) <= FLAT
    summary["passed"] = summary["flat"] and not any(summary[name] for name in bad)
    path = journal.finish(summary | {"watch": watched[:: max(1, len(watched) // 200)]})
    report(summary, path, failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
