"""Measures the acceptance of the small trained checkpoints by the protocol their `expected.json` states.

    python tests/bench/zoo.py --prompts 20

For each checkpoint once with its family's own settings and once with each switch the other way (concat, tap, recursion,
norm convention), set through the pack's manifest. Fails where a figure is more than 0.03 from the stated one, where a
text is not the plain greedy one, or where stated greedy tokens are not reproduced.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from harness import Journal, Sample, run
from support import zoo
from zoo_rows import Rows, measure_rows

SETTINGS: tuple[str | None, ...] = (None, *zoo.STATED)


def sample(name: str, flipped: str | None, prompts: list[list[int]], plain: list[list[int]]) -> Sample:
    """One checkpoint with one setting: each prompt's rounds, accepted positions, and whether its text is the plain."""
    with tempfile.TemporaryDirectory() as folder:
        model = zoo.open_zoo(name, Path(folder), flipped)
        tallies = [zoo.measure(model, [prompt]) for prompt in prompts]
    return {
        "rounds": [tally.rounds for tally in tallies],
        "accepted": [tally.accepted for tally in tallies],
        "as_plain": sum(tally.texts[0] == text for tally, text in zip(tallies, plain, strict=True)),
    }


def plain_texts(name: str, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens without a head."""
    with tempfile.TemporaryDirectory() as folder:
        model = zoo.open_zoo(name, Path(folder), plain=True)
        return [zoo.decode_plainly(model, prompt) for prompt in prompts]


def judge(name: str, flipped: str | None, found: Sample) -> dict[str, Any]:
    """What was measured beside what is stated for all prompts."""
    expected = zoo.expected_of(name)
    stated = expected["correct"] if flipped is None else expected["wrong"][zoo.STATED[flipped]]
    rounds, texts = sum(found["rounds"]), len(found["rounds"])
    acceptance = [sum(one[k] for one in found["accepted"]) / rounds for k in range(zoo.DEPTH)]
    apart = max(abs(a - b) for a, b in zip(acceptance, stated["acceptance"], strict=True))
    return {
        "rounds": rounds,
        "stated_rounds": stated["rounds"],
        "acceptance": [round(one, 4) for one in acceptance],
        "stated": stated["acceptance"],
        "apart": round(apart, 4),
        "tokens_per_round": round(1 + sum(acceptance), 3),
        "stated_tokens_per_round": stated["tokens_per_round"],
        "texts_as_plain": f"{found['as_plain']}/{texts}",
        "passed": found["as_plain"] == texts and apart <= zoo.TOLERANCE,
    }


def reproduced(name: str, plain: list[list[int]]) -> dict[str, Any]:
    """Whether the stated greedy texts are those made here."""
    stated = [one for one in zoo.expected_of(name)["greedy"] if one["prompt"] < len(plain)]
    same = sum(plain[one["prompt"]] == one["tokens"] for one in stated)
    return {"stated_greedy_reproduced": f"{same}/{len(stated)}", "passed": same == len(stated)}


def rows_of(name: str, prompts: list[list[int]], journal: Journal) -> Rows:
    """Its plain texts, its right settings, and each switch the other way."""
    plain = plain_texts(name, prompts)
    yield f"{name} plain", reproduced(name, plain)
    for flipped in SETTINGS:
        key = f"{name} {flipped or 'right'}"
        make = partial(sample, name, flipped, prompts, plain)
        yield key, judge(name, flipped, journal.take(key, make))


if __name__ == "__main__":
    run(partial(measure_rows, "zoo", __doc__, rows_of))
