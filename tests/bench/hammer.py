"""Hammers shared beginnings: clients ask for prompts that begin alike, part and were edited, A, then B, then A again.

    python tests/bench/hammer.py --minutes 10 --clients 8

The requests use the store, only write to it, or leave it alone, whatever the draw says; memory and disk are so small
that blocks come and go. No text may differ from that of a daemon that keeps nothing, which is asked first; at the end
every block must verify, nothing be left, and memory have stayed flat from where its bounds were reached.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cold_texts import Cold, Texts, collect, copy_pack, load, restore
from harness import RESULTS, Journal, report
from mtplx_client import Client
from mtplx_client.errors import MtplxError
from soak_memory import weigh_memory
from support.daemon_process import DaemonProcess, running_daemon, short_folder

TABLE = {"each": 8, "conversations": 0}
SETTINGS = {
    "MTPLXD_STORE_BLOCK": "16",
    "MTPLXD_STORE_FREE_FLOOR": "0",
    "MTPLXD_STORE_SIZE": "48M",
    "MTPLXD_PREFIX_CACHE": "24M",
}
STORES = ("on", "on", "on", "write-only", "off")
FLAT = 0.03
WATCH_S, TELL_S = 1.0, 60.0
LEFT_LOOKS, LEFT_S = 400, 0.05


@dataclass
class Heard:
    """What all clients heard. `kept` counts prompt tokens that were not read anew."""

    asked: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    prompts: int = 0
    wrong: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Hammer:
    """One client on a thread of its own."""

    def __init__(self, socket: Path, tables: list[Texts], heard: Heard, draw: random.Random) -> None:
        self._client, self._tables, self._heard, self._draw = Client(socket=socket), tables, heard, draw

    def live(self, over: threading.Event) -> None:
        """Triples until it is over."""
        try:
            while not over.is_set():
                texts = self._draw.choice(self._tables)
                first = self._draw.choice(texts.branches)
                kin = [one for one in texts.branches if one.branch.family == first.branch.family]
                for way, one in (("a", first), ("b", self._draw.choice(kin)), ("a again", first)):
                    self._ask(texts, one, way)
        except MtplxError as error:
            self._heard.faults.append(f"{type(error).__name__}: {error}")
        finally:
            self._client.close()

    def _ask(self, texts: Texts, one: Cold, way: str) -> None:
        store, heard = self._draw.choice(STORES), self._heard
        reply = texts.ask(self._client, one, store=store)
        with heard.lock:
            heard.asked[f"{way}, {store}"] += 1
            heard.kept += reply.usage.cached_tokens
            heard.prompts += reply.usage.prompt_tokens
        if reply.tokens != one.tokens:
            kept = f"{reply.usage.cached_tokens} of {reply.usage.prompt_tokens} tokens kept"
            heard.wrong.append(f"{texts.pack.name}, {way}, {store}, {one.branch.options}, {kept}")


@contextmanager
def hammered(daemon: DaemonProcess, tables: list[Texts], clients: int, seed: int) -> Iterator[Heard]:
    """All clients at work while it lasts."""
    heard, over = Heard(), threading.Event()
    threads = [
        threading.Thread(
            target=Hammer(daemon.socket, tables, heard, random.Random(f"{seed} {number}")).live, args=(over,)
        )
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield heard
    finally:
        over.set()
        for thread in threads:
            thread.join()


def watch(client: Client, heard: Heard, minutes: float) -> list[dict[str, float]]:
    """The daemon's size, every second until the time is over."""
    watched: list[dict[str, float]] = []
    begin = told = time.monotonic()
    while (now := time.monotonic()) - begin < 60 * minutes:
        status = client.status()
        kept = status.engine.prefixes
        watched.append(
            {
                "s": now - begin,
                "rss": status.memory.used,
                "prefixes": kept.bytes,
                "limit": kept.limit,
                "contexts": status.engine.contexts,
                "waiting": client.cache_stats().waiting,
            }
        )
        if now - told >= TELL_S:
            told = now
            print(
                f"{(now - begin) / 60:5.1f} min  {heard.asked.total()} requests  {len(heard.wrong)} wrong  "
                f"{status.memory.used / 1e6:.0f} MB",
                flush=True,
            )
        time.sleep(WATCH_S)
    return watched


def look(client: Client) -> dict[str, Any]:
    """What is left once all have gone, and what the store holds."""
    for _ in range(LEFT_LOOKS):
        status = client.status()
        if not status.in_flight:
            break
        time.sleep(LEFT_S)
    engine, verified, stats = status.engine, client.cache_verify(), client.cache_stats()
    return {
        "left_over": engine.rows + engine.prefilling + engine.set_aside + len(status.in_flight),
        "blocks": verified.blocks,
        "bad_blocks": verified.bad + stats.quarantined,
        "store": stats.state,
        "evicted": stats.evicted,
        "mb_written": stats.bytes_written / 1e6,
        "tokens_from_disk": stats.tokens_from_disk,
    }


def play(tables: list[Texts], args: argparse.Namespace) -> dict[str, Any]:
    """The whole of it, summarised."""
    with short_folder() as home, running_daemon(home, **SETTINGS) as daemon:
        with Client(socket=daemon.socket) as client:
            for texts in tables:
                load(client, texts.pack)
            with hammered(daemon, tables, args.clients, args.seed) as heard:
                watched = watch(client, heard, args.minutes)
            found = look(client)
        code, _, said = daemon.stop()
        tracebacks = daemon.log().count("Traceback")
    return {
        "minutes": round(watched[-1]["s"] / 60, 2),
        "requests": heard.asked.total(),
        "asked": dict(sorted(heard.asked.items())),
        "kept_share": heard.kept / max(1, heard.prompts),
        "wrong_texts": len(heard.wrong),
        "wrong": heard.wrong[:20],
        "faults": heard.faults,
        **found,
        "exit": code,
        "stderr": said[-500:],
        "tracebacks": tracebacks,
        "memory_full": max(one["prefixes"] / one["limit"] for one in watched),
        **weigh_memory(watched),
        "watch": watched[:: max(1, len(watched) // 200)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="hammers shared beginnings of prompts with many clients")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long")
    parser.add_argument("--clients", type=int, default=8, help="clients at a time")
    parser.add_argument("--names", default="mimo,qwen3_5", help="checkpoints of the zoo")
    parser.add_argument("--families", type=int, default=4, help="beginnings that prompts share, of each")
    parser.add_argument("--seed", type=int, default=0, help="of what the clients ask")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has found")
    args = parser.parse_args()
    journal = Journal("hammer", args)
    with tempfile.TemporaryDirectory(prefix="hammer-") as folder:
        packs = [copy_pack(name, Path(folder)) for name in args.names.split(",")]
        cold = [
            journal.take(f"cold {pack.name}", partial(collect, pack, args.families, **TABLE))
            for pack in packs
        ]
        tables = [
            restore(pack, found, args.families, **TABLE) for pack, found in zip(packs, cold, strict=True)
        ]
        summary = play(tables, args)
    summary["flat"] = abs(summary["rss_drift"]) <= FLAT
    bad = ("wrong_texts", "faults", "left_over", "bad_blocks", "exit", "stderr", "tracebacks")
    summary["passed"] = summary["flat"] and not any(summary[name] for name in bad)
    path = journal.finish(summary)
    report(
        {name: value for name, value in summary.items() if name != "watch"},
        path,
        failed=not summary["passed"],
    )


if __name__ == "__main__":
    main()
