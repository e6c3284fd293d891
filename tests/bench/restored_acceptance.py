"""Whether a head drafts as well behind a prompt that was brought back as behind one that was read.

    python tests/bench/restored_acceptance.py --prompts 20

Each prompt of the zoo's own text is asked cold, from memory, and of a new daemon from disk: how many of the drafts at
each place were accepted, all prompts together, and whether the texts are the same. Fails where a share is more than
0.02 from the cold one, a text is another, or less than all but the last token came back.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from branching import GREEDY, read_ids
from cold_texts import common, copy_pack, load
from harness import RESULTS, Journal, Sample, report
from mtplx_client import Client
from mtplx_client.events import Reply
from support.daemon_process import running_daemon, short_folder

DEPTH = 3
WAYS = COLD, RAM, DISK = "cold", "ram", "disk"
APART = 0.02
SETTINGS = {"MTPLXD_STORE_BLOCK": "16", "MTPLXD_STORE_FREE_FLOOR": "0"}


def sample(pack: Path, prompts: list[list[int]], max_tokens: int) -> Sample:
    """All prompts in all three ways."""
    found: dict[str, list[Reply]] = {}
    with short_folder() as home:
        for ways in ((COLD, RAM), (DISK,)):
            with running_daemon(home, **SETTINGS) as daemon:
                with Client(socket=daemon.socket) as client:
                    load(client, pack, DEPTH)
                    for way in ways:
                        found[way] = [_ask(client, pack, prompt, max_tokens) for prompt in prompts]
                daemon.stop()  # all that was offered is written before it ends
    return {way: _weigh(replies) for way, replies in found.items()}


def _ask(client: Client, pack: Path, prompt: list[int], max_tokens: int) -> Reply:
    options = {**common(pack), **GREEDY, "depth": DEPTH, "max_tokens": max_tokens, "ignore_eos": True}
    return client.complete(tokens=prompt, store="on", **options)


def _weigh(replies: list[Reply]) -> Sample:
    sums = [reply.stats.accepted_by_position for reply in replies]
    return {
        "rounds": sum(reply.stats.rounds for reply in replies),
        "drafted": sum(reply.stats.drafted for reply in replies),
        "accepted": [sum(one[k] for one in sums if len(one) > k) for k in range(DEPTH)],
        "cached": [reply.usage.cached_tokens for reply in replies],
        "texts": [sha256(repr(reply.tokens).encode()).hexdigest()[:16] for reply in replies],
    }


def judge(found: Sample, length: int) -> dict[str, Any]:
    """The shares beside the cold ones."""
    shares = {way: [one / found[way]["rounds"] for one in found[way]["accepted"]] for way in WAYS}
    apart = {
        way: max(abs(a - b) for a, b in zip(shares[way], shares[COLD], strict=True)) for way in (RAM, DISK)
    }
    back = {way: min(found[way]["cached"]) for way in (RAM, DISK)}
    same = all(found[way]["texts"] == found[COLD]["texts"] for way in WAYS)
    return {
        "acceptance": {way: [round(one, 4) for one in shares[way]] for way in WAYS},
        "apart": {way: round(one, 4) for way, one in apart.items()},
        "cached_at_least": back,
        "same_texts": same,
        "passed": same and max(apart.values()) <= APART and min(back.values()) == length - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="compares acceptance behind prompts read and brought back")
    parser.add_argument("--prompts", type=int, default=20, help="how many of each checkpoint")
    parser.add_argument("--tokens", type=int, default=448, help="tokens of each prompt")
    parser.add_argument("--max-tokens", type=int, default=48, help="tokens of each answer")
    parser.add_argument("--names", default="qwen3_5,mimo,glm4_moe_lite", help="checkpoints of the zoo")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has found")
    args = parser.parse_args()
    journal = Journal("restored_acceptance", args)
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="restored-") as folder:
        for name in args.names.split(","):
            ids, pack = read_ids(name), copy_pack(name, Path(folder))
            step = len(ids) // args.prompts
            prompts = [[*ids[at:], *ids[:at]][: args.tokens] for at in range(0, step * args.prompts, step)]
            found = journal.take(name, partial(sample, pack, prompts, args.max_tokens))
            rows[name] = judge(found, args.tokens)
            print(name, rows[name], flush=True)
    passed = all(row["passed"] for row in rows.values())
    report({"passed": passed}, journal.finish({"passed": passed, "rows": rows}), failed=not passed)


if __name__ == "__main__":
    main()
