"""Compares how fast 1, 2, 4 and 8 clients are served in all: plainly, at fixed depths, and at the daemon's own choice.

    python tests/bench/clients_modes.py --clients 1,2,4,8 --modes plain,1,2,3,auto --suites chat,code,prose --turns 3

In each turn every suite and number of clients is played in all modes, one after the other, each turn beginning with
another mode; modes are compared within a turn, and what is told is the median of these ratios, so that a machine that
gets slower meanwhile changes none of them. Prompts are read once before, so that no mode finds fewer of them known
than the next. An interrupted run goes on where it was. Total tokens a second are (tokens − clients) / (last token −
first token of anyone), which for one client is its own figure.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from crowd import Heard, Stage, check, staged
from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.tune.prompts import load_suite

PLAIN, AUTO = "plain", "auto"
SAMPLER = {"temperature": 0.6, "top_p": 0.95, "acceptance": "block", "ignore_eos": True}
TOTAL = {4: 2.8, 8: 4.2}
"""What must be reached: total speed over one client's plain speed, by clients."""
SPECULATIVE, CHOSEN = 1.1, 0.97
"""The best speculative mode over plain at `SPECULATIVE_AT` clients, and auto over the best fixed depth, everywhere."""
SPECULATIVE_AT = 4
WARM_TOKENS = 16
"""Of an untimed crowd of each shape."""
SHOWN = ("tok_s_total", "tok_s_asked", "tok_s_all_decoding", "round_s", "acceptance", "slowest_over_fastest")


class Key(NamedTuple):
    """One crowd: which prompts, how many clients, which mode."""

    suite: str
    turn: int
    clients: int
    mode: str


def options_of(mode: str) -> dict[str, Any]:
    if mode == PLAIN:
        return {"depth": 0, "plain": True}
    return {"depth": AUTO if mode == AUTO else int(mode)}


def time_crowd(stage: Stage, key: Key, tokens: int) -> Sample:
    """How fast a crowd was answered."""
    return weigh(ask_together(stage, key, tokens))


def ask_together(stage: Stage, key: Key, tokens: int) -> list[Heard]:
    """As many clients, each with another prompt of the suite, all asking at once; stop tokens ignored."""
    prompts = load_suite(key.suite).prompts
    chosen = [prompts[(at + key.turn * key.clients) % len(prompts)] for at in range(key.clients)]
    settings = {"max_tokens": tokens, **SAMPLER, **options_of(key.mode)}
    asks = [stage.ask(prompt.text, seed=prompt.seed + key.turn, **settings) for prompt in chosen]
    return [check(heard) for heard in stage.together(asks)]


def read_prompts(stage: Stage, key: Key) -> None:
    """Has a crowd's prompts read without and with the head, untimed: each mode then finds as much of them known."""
    for mode in (PLAIN, "1"):
        ask_together(stage, key._replace(mode=mode), 2)


def name_of(key: Key) -> str:
    """A crowd's name in the journal."""
    return " ".join(map(str, key))


def weigh(heard: list[Heard]) -> Sample:
    """Speeds in tokens a second, waits in seconds."""
    tokens = sum(len(one.tokens) for one in heard)
    asked = min(one.asked for one in heard)
    first, last = min(one.times[0] for one in heard), max(one.times[-1] for one in heard)
    all_begun, one_done = max(one.times[0] for one in heard), min(one.times[-1] for one in heard)
    between = sum(made_between(one, all_begun, one_done) for one in heard)
    finals = [one.final.stats for one in heard if one.final]
    drafted, accepted = sum(s.drafted for s in finals), sum(s.accepted for s in finals)
    return {
        "tok_s_total": (tokens - len(heard)) / (last - first),
        "tok_s_asked": tokens / (last - asked),
        "tok_s_all_decoding": between / (one_done - all_begun) if one_done > all_begun else 0.0,
        "ttft_s": sorted(one.ttft for one in heard),
        "slowest_over_fastest": max(one.ended - one.asked for one in heard)
        / min(one.ended - one.asked for one in heard),
        "longest_gap_s": max(max(one.gaps) for one in heard),
        "round_s": median(gap for one in heard for gap in one.gaps),
        "rounds": sum(s.rounds for s in finals),
        "drafted": drafted,
        "acceptance": accepted / drafted if drafted else 0.0,
    }


def made_between(heard: Heard, begin: float, end: float) -> float:
    """Tokens of a request between two moments, an event's tokens all at its own time."""
    per_event = len(heard.tokens) / len(heard.times)
    return per_event * sum(begin < at <= end for at in heard.times)


def summarise(samples: dict[Key, Sample]) -> dict[str, Any]:
    """Medians, over suites and turns, of ratios within a suite and turn; and what falls short."""
    speeds = {key: sample["tok_s_total"] for key, sample in samples.items()}
    counts = sorted({key.clients for key in samples})
    modes = list(dict.fromkeys(key.mode for key in samples))
    rows = [make_row(samples, clients, modes) for clients in counts]
    drafting = [mode for mode in modes if mode != PLAIN]
    summary: dict[str, Any] = {"rows": rows, "tok_s_plain_one": rows[0]["tok_s_total"][PLAIN]}
    misses = []
    for row in rows:
        clients = row["clients"]
        total = summary[f"total_{clients}"] = max(row["over_plain_one"].values())
        pays = summary[f"speculative_{clients}"] = max(
            (row["over_plain"][mode] for mode in drafting), default=0.0
        )
        if total < TOTAL.get(clients, 0.0):
            misses.append(f"{clients} clients: {total:.2f} x one plain client")
        if clients == SPECULATIVE_AT and drafting and pays < SPECULATIVE:
            misses.append(f"{clients} clients: speculation {pays:.2f} x plain")
    if AUTO in modes:
        summary["auto_over_best"] = chosen = compare_auto(
            speeds, counts, [mode for mode in modes if mode != AUTO]
        )
        misses += [f"auto, {where}: {ratio:.3f}" for where, ratio in chosen.items() if ratio < CHOSEN]
    return {**summary, "misses": misses, "passed": not misses}


def make_row(samples: dict[Key, Sample], clients: int, modes: list[str]) -> dict[str, Any]:
    """What one number of clients reached in each mode: medians over suites and turns."""
    ones = [key for key in samples if key.clients == 1 and key.mode == PLAIN]

    def middle(name: str, mode: str) -> float:
        return median(samples[one._replace(clients=clients, mode=mode)][name] for one in ones)

    def over(other: Callable[[Key], Key], mode: str) -> float:
        """The median of what the mode reached of another crowd in the same suite and turn."""
        speeds = [
            samples[one._replace(clients=clients, mode=mode)]["tok_s_total"]
            / samples[other(one)]["tok_s_total"]
            for one in ones
        ]
        return median(speeds)

    return {
        "clients": clients,
        "over_plain_one": {mode: over(lambda one: one, mode) for mode in modes},
        "over_plain": {mode: over(lambda one: one._replace(clients=clients), mode) for mode in modes},
        **{name: {mode: middle(name, mode) for mode in modes} for name in SHOWN},
    }


def compare_auto(speeds: dict[Key, float], counts: list[int], fixed: list[str]) -> dict[str, float]:
    """By suite and clients: the median over turns of auto's speed over that of the fixed depth with the best median."""
    found = {}
    turns = sorted({key.turn for key in speeds})
    for suite, clients in product(dict.fromkeys(key.suite for key in speeds), counts):
        reached = {
            mode: [speeds[Key(suite, turn, clients, mode)] for turn in turns] for mode in (*fixed, AUTO)
        }
        best = max(fixed, key=lambda mode: median(reached[mode]))
        pairs = zip(reached[AUTO], reached[best], strict=True)
        found[f"{suite}, {clients}"] = round(median(auto / other for auto, other in pairs), 4)
    return found


def in_turn(modes: list[str], turn: int) -> list[str]:
    """Each turn begins with another mode, so that none always runs on a cooler machine."""
    at = turn % len(modes)
    return [*modes[at:], *modes[:at]]


def main() -> None:
    parser = make_parser(__doc__ or "", max_tokens=96)
    parser.add_argument("--clients", default="1,2,4,8", help="numbers of clients; 1 is always among them")
    parser.add_argument("--modes", default="plain,1,2,3,auto", help="depths; plain is always among them")
    parser.add_argument("--suites", default="chat,code,prose", help="suites")
    parser.add_argument("--turns", type=int, default=1, help="how often everything is measured")
    args = parser.parse_args()
    counts = sorted({1, *map(int, args.clients.split(","))})
    modes = list(dict.fromkeys([PLAIN, *args.modes.split(",")]))
    suites = args.suites.split(",")
    journal = Journal("clients_modes", args)
    samples: dict[Key, Sample] = {}
    with staged(Path(find_pack(args.model).path)) as stage:
        for clients, mode in product(counts, modes):
            time_crowd(stage, Key(suites[0], args.turns, clients, mode), WARM_TOKENS)
        for turn, suite in product(range(args.turns), suites):
            for at, clients in enumerate(counts):
                keys = [Key(suite, turn, clients, mode) for mode in in_turn(modes, turn + at)]
                if not all(journal.has(name_of(key)) for key in keys):
                    read_prompts(stage, keys[0])
                for key in keys:
                    samples[key] = journal.take(
                        name_of(key), lambda key=key: time_crowd(stage, key, args.max_tokens)
                    )
    summary = summarise(samples)
    path = journal.finish(summary)
    report({**summary, "rows": show(summary["rows"])}, path, failed=not summary["passed"])


def show(rows: list[dict[str, Any]]) -> str:
    """The ratios, a line a number of clients."""
    lines = []
    for row in rows:
        ratios = "  ".join(f"{mode} {ratio:.2f}" for mode, ratio in row["over_plain_one"].items())
        lines.append(f"{row['clients']:>3} clients  {ratios}")
    return "over one plain client:\n" + "\n".join(lines)


if __name__ == "__main__":
    run(main)
