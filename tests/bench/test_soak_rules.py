"""What the soak calls right and wrong, without a daemon: ends, texts, memory."""

from __future__ import annotations

import random
from typing import Any

import pytest


def compared(promise: str, tokens: tuple[int, ...], *, whole: bool = True, choice: int = 0) -> str:
    from mixed_asks import Mixed
    from soak import compare
    from soak_clients import Record

    ask = Mixed("x", promise, {"temperature": 0.0 if promise == "greedy" else 0.7})
    outcome = "length" if whole else "cancelled"
    return compare(Record("complete", 0, tokens, outcome, whole, choice), ask, [1, 2, 3, 4])


@pytest.mark.parametrize("promise", ["greedy", "coupled", "reproducible"])
def test_a_text_is_the_lone_one_or_a_beginning_of_it(promise: str) -> None:
    assert compared(promise, (1, 2, 3, 4)) == "same"
    assert compared(promise, (1, 2), whole=False) == "same"
    assert compared(promise, (), whole=False) == "same"
    assert compared(promise, (1, 2)) != "same"
    assert compared(promise, (1, 2, 3, 4, 5)) != "same"
    assert compared(promise, (1, 9), whole=False) != "same"


def test_only_a_text_that_may_round_otherwise_is_judged_by_its_margin() -> None:
    assert compared("greedy", (1, 9, 3, 4)) == "parts"
    assert compared("coupled", (1, 9, 3, 4)) == "parts"
    assert compared("reproducible", (1, 9, 3, 4)) == "a reproducible text differs"
    assert compared("greedy", (1, 2)) == "a text ends elsewhere"


def test_another_answer_of_a_seed_is_another_text_but_a_greedy_one_is_not() -> None:
    assert compared("coupled", (9, 9), choice=1) == "same"
    assert compared("reproducible", (9, 9), choice=2) == "same"
    assert compared("greedy", (9, 9, 3, 4), choice=1) == "parts"


def watched(sizes: list[float], contexts: float = 0.0, waiting: float = 0.0) -> list[dict[str, float]]:
    """`contexts` and `waiting` grow from nothing to so much, beside these sizes."""
    share = [at / len(sizes) for at in range(len(sizes))]
    return [
        {
            "s": float(at),
            "rss": size + (contexts + waiting) * share[at],
            "prefixes": 0.0,
            "contexts": contexts * share[at],
            "waiting": waiting * share[at],
        }
        for at, size in enumerate(sizes)
    ]


def test_memory_is_compared_after_the_warm_up() -> None:
    from soak_memory import weigh_memory

    assert weigh_memory(watched([1.0] * 10 + [100.0] * 30))["rss_drift"] == pytest.approx(0.0)
    grown = weigh_memory(watched([100.0 + at for at in range(40)]))
    assert grown["rss_drift"] > 0.1
    assert weigh_memory([])["rss_drift"] == 0.0


def test_what_rows_hold_and_what_waits_for_the_disk_is_no_leak() -> None:
    from soak_memory import weigh_memory

    found = weigh_memory(watched([100.0] * 40, contexts=50.0, waiting=30.0))
    assert found["rss_drift"] == pytest.approx(0.0)
    assert found["contexts_mb"][1] > found["contexts_mb"][0]
    assert found["rss_mb"] > found["own_mb"][1]


def test_the_same_seed_draws_the_same_fates_and_all_of_them_come() -> None:
    from soak_fates import WEIGHTS, draw

    one, other = random.Random("a"), random.Random("a")
    fates = [draw(one, 5) for _ in range(2000)]
    assert fates == [draw(other, 5) for _ in range(2000)]
    assert {fate.kind for fate in fates} == set(WEIGHTS)
    assert {fate.at for fate in fates} == set(range(5))
    assert any(fate.options.get("priority") == "background" for fate in fates)


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("complete", "length", "cancelled"),
        ("complete", "ResourceExhausted", "error"),
        ("bad", "InvalidArgument", "length"),
        ("deadline", "DeadlineExceeded", "Internal"),
        ("cancel", "cancelled", "Unavailable"),
        ("leave", "", "error"),
    ],
)
def test_each_fate_has_its_right_ends(kind: str, right: str, wrong: str) -> None:
    from soak_fates import Fate

    ends = Fate(kind, 0).right_ends
    assert right in ends
    assert wrong not in ends


def test_the_mix_has_every_setting_with_every_suite() -> None:
    from mixed_asks import SETTINGS, mix

    asks: list[Any] = mix(64)
    assert len({ask.prompt for ask in asks}) == 64
    assert {ask.promise for ask in asks} == {"greedy", "coupled", "reproducible", "sampled"}
    assert len({tuple(sorted(map(str, ask.options.items()))) for ask in asks}) == 64
    assert len(SETTINGS) == 16
    assert mix(64) == asks
    assert max(ask.options["max_tokens"] for ask in mix(64, 20)) == 20
