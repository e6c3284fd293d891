"""A long step waits while somebody says why, tells each reason once, and ends as soon as it is cancelled."""

from __future__ import annotations

from itertools import chain, repeat

import numpy as np
import pytest
from mtplxd.errors import Cancelled
from mtplxd.forge.pacing import Pace
from mtplxd.forge.rollout import Plan, Turns, roll


def test_it_goes_on_at_once_where_nothing_is_in_the_way() -> None:
    told: list[tuple[object, ...]] = []
    Pace(lambda *words: told.append(words), sleep=lambda _: pytest.fail("slept")).breathe("data", 1, 2)
    assert not told


def test_each_reason_to_wait_is_told_once() -> None:
    reasons = chain(["battery 20 %", "battery 20 %", "hot", "battery 19 %"], repeat(""))
    told, slept = [], []
    pace = Pace(lambda *words: told.append(words), should_wait=lambda: next(reasons), sleep=slept.append)
    pace.breathe("train", 3, 9)
    assert told == [
        ("train", 3, 9, "battery 20 %"),
        ("train", 3, 9, "hot"),
        ("train", 3, 9, "battery 19 %"),
    ]
    assert len(slept) == 4
    assert max(slept) <= 1


def test_a_cancel_ends_a_wait() -> None:
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 3

    pace = Pace(lambda *_: None, cancelled, lambda: "battery 5 %", sleep=lambda _: None)
    with pytest.raises(Cancelled, match="train step was cancelled"):
        pace.breathe("train", 0, 1)


def test_rows_breathe_before_every_token() -> None:
    class Never:
        rows = 1

        def reset(self) -> None:
            pass

        def step(self, _tokens: object) -> object:
            pytest.fail("computed a token after the cancel")

    def stop() -> None:
        raise Cancelled("enough")

    turns = Turns(first=[1], again=[], close=[], encode=lambda _: [1])
    with pytest.raises(Cancelled):
        roll(Never(), turns, lambda _: "", Plan(length=4), np.random.default_rng(0), stop)  # type: ignore[arg-type]
