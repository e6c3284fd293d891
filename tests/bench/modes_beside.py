"""Compares plain decoding, fixed depths and the daemon's own choice with all of them playing at once, a round each.

    python tests/bench/modes_beside.py --clients 1,2,4,8 --modes plain,1,2,3,auto --suites chat,code,prose --turns 2

Every mode has a crowd of its own on one engine, which plays a round of each in turn: whatever makes this machine slower
for a second does so for all modes. What a mode reached is (tokens − clients) / the seconds of its rounds after the
first; prompts, and what else happens between rounds, are `clients_modes.py`'s to weigh, over the daemon's socket.
The own choice has served a crowd of each number before, and keeps what it learns from crowd to crowd, as a daemon
does. An interrupted run goes on where it was.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from itertools import product
from statistics import median
from typing import Any

from clients_modes import (
    AUTO,
    CHOSEN,
    PLAIN,
    SPECULATIVE,
    SPECULATIVE_AT,
    Key,
    compare_auto,
    in_turn,
    name_of,
)
from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.engine.depth import DepthController, RoundSeen
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Finished
from mtplxd.engine.request import BLOCK, Request, SamplerSettings
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.tiers import Tiers
from mtplxd.tune.prompts import load_suite

PREFIX_BYTES = 1 << 29
MOST_ROWS = 64
SAMPLER = SamplerSettings(temperature=0.6, top_p=0.95, acceptance=BLOCK)


class Watched(DepthController):
    """A model's controller, and what its rounds took."""

    def __init__(self, depth_max: int) -> None:
        super().__init__(depth_max)
        self.seen: list[RoundSeen] = []

    def observe(self, seen: RoundSeen) -> None:
        """Learns from a round, and keeps it."""
        self.seen.append(seen)
        super().observe(seen)


class Ring:
    """One engine, and a model of its own for each mode; the weights are the same."""

    def __init__(self, pack: Any, modes: list[str]) -> None:
        self._engine = Engine(
            queue_limit=MOST_ROWS,
            max_rows=MOST_ROWS,
            client_limit=MOST_ROWS,
            prefix_store=Tiers(PrefixIndex(PREFIX_BYTES), None),
        )
        self._engine.start()
        loaded = self._engine.call(lambda: _load(pack), "measuring").result()
        self._models = {mode: copy.copy(loaded) for mode in modes}
        for mode, model in self._models.items():
            model.depths = Watched(loaded.depth_max)
            model.head = None if mode == PLAIN else model.head

    def play(self, keys: list[Key], tokens: int) -> dict[Key, Sample]:
        """The crowds of all modes at once."""
        self._serve([request for key in keys[:2] for request in self._ask(key, 1)])  # their prompts are read
        for model in self._models.values():
            model.depths.seen.clear()
        self._serve([request for key in keys for request in self._ask(key, tokens)])
        return {key: _weigh(self._models[key.mode].depths.seen, key.clients, tokens) for key in keys}

    def _serve(self, requests: list[Request]) -> None:
        left, ends = threading.Semaphore(0), list[Finished]()

        def hear(event: Event) -> None:
            if isinstance(event, Finished):
                ends.append(event)
                left.release()

        for request in requests:
            self._engine.submit(request, hear)
        for _ in requests:
            left.acquire()
        assert all(end.finish_reason == "length" for end in ends)

    def _ask(self, key: Key, tokens: int) -> list[Request]:
        prompts, model = load_suite(key.suite).prompts, self._models[key.mode]
        chosen = [prompts[(at + key.turn * key.clients) % len(prompts)] for at in range(key.clients)]
        return [
            Request(
                id=f"{name_of(key)} {at}",
                client=f"{key.mode} {at}",
                model=model,
                prompt=model.tokenizer.render_chat([{"role": "user", "content": prompt.text}]),
                sampler=replace(SAMPLER, seed=prompt.seed + key.turn),
                max_tokens=tokens,
                ignore_eos=True,
                depth=_depth_of(key.mode, model.depth_max),
                auto=key.mode == AUTO,
            )
            for at, prompt in enumerate(chosen)
        ]


def _depth_of(mode: str, most: int) -> int:
    return 0 if mode == PLAIN else most if mode == AUTO else int(mode)


def _load(pack: Any) -> Any:
    from mtplxd.families.load import load_model

    return load_model(pack, plain=False)


def _weigh(seen: list[RoundSeen], clients: int, tokens: int) -> Sample:
    """Of all rounds after the first: a round's seconds are those from its launch to its landing."""
    usual = median(one.seconds for one in seen if one.seconds)
    seconds = [
        one.seconds or usual for one in seen
    ]  # those launched ahead while nobody else was left tell nothing
    full = [one.seconds for one in seen if len(one.rows) == clients and one.seconds]
    return {
        "tok_s_total": (tokens - 1) * clients / sum(seconds[1:]),
        "round_s": median(full) if full else 0.0,
        "full_rounds": len(full),
        "rounds": len(seen),
        "untimed": sum(one.seconds is None for one in seen),
        "drafted_a_round": sum(one.width for one in seen) / len(seen),
        "tokens_a_row": sum(row.accepted + 1 for one in seen for row in one.rows)
        / sum(len(one.rows) for one in seen),
    }


def summarise(samples: dict[Key, Sample]) -> dict[str, Any]:
    """Medians of ratios within a suite and turn, by clients; and what falls short."""
    speeds = {key: sample["tok_s_total"] for key, sample in samples.items()}
    modes = list(dict.fromkeys(key.mode for key in samples))
    counts = sorted({key.clients for key in samples})
    plain = {key: speed for key, speed in speeds.items() if key.mode == PLAIN}
    over = {
        clients: {
            mode: round(
                median(
                    speeds[key._replace(mode=mode)] / own
                    for key, own in plain.items()
                    if key.clients == clients
                ),
                4,
            )
            for mode in modes
        }
        for clients in counts
    }
    chosen = compare_auto(speeds, counts, [mode for mode in modes if mode != AUTO]) if AUTO in modes else {}
    misses = [f"auto, {where}: {ratio:.3f}" for where, ratio in chosen.items() if ratio < CHOSEN]
    pays = max((ratio for mode, ratio in over.get(SPECULATIVE_AT, {}).items() if mode != PLAIN), default=None)
    if pays is not None and pays < SPECULATIVE:
        misses.append(f"{SPECULATIVE_AT} clients: speculation {pays:.2f} x plain")
    return {"over_plain": over, "auto_over_best": chosen, "misses": misses, "passed": not misses}


def main() -> None:
    parser = make_parser(__doc__ or "", max_tokens=96)
    parser.add_argument("--clients", default="1,2,4,8", help="numbers of clients")
    parser.add_argument("--modes", default="plain,1,2,3,auto", help="depths; plain is always among them")
    parser.add_argument("--suites", default="chat,code,prose", help="suites")
    parser.add_argument("--turns", type=int, default=1, help="how often everything is measured")
    args = parser.parse_args()
    counts = sorted(map(int, args.clients.split(",")))
    modes, suites = list(dict.fromkeys([PLAIN, *args.modes.split(",")])), args.suites.split(",")
    journal, samples = Journal("modes_beside", args), dict[Key, Sample]()
    ring = Ring(find_pack(args.model), modes)
    for clients in counts:  # shapes are new to the machine once, and the own choice has served before
        ring.play([Key(suites[0], args.turns, clients, mode) for mode in modes], args.max_tokens)
    for turn, suite, clients in product(range(args.turns), suites, counts):
        keys = [Key(suite, turn, clients, mode) for mode in in_turn(modes, turn)]
        missing = not all(journal.has(name_of(key)) for key in keys)
        found = ring.play(keys, args.max_tokens) if missing else {}
        for key in keys:
            samples[key] = journal.take(name_of(key), lambda key=key, found=found: found[key])
            print(name_of(key), {name: round(value, 3) for name, value in samples[key].items()}, flush=True)
    summary = summarise(samples)
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
