"""When a build rests, what it says of itself, and how it steps back: pure, with clocks and readings of the test's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mtplxd.forge import jobs
from mtplxd.forge.jobs import LOOK_S, _Voice
from mtplxd.forge.news import EVERY_S, News, Told
from mtplxd.forge.waiting import LEAST_PERCENT, reason_to_wait
from mtplxd.platform.power import Battery


@pytest.mark.parametrize(
    ("battery", "waits"),
    [
        (Battery(), False),
        (Battery(draining=True), False),
        (Battery(True, LEAST_PERCENT), False),
        (Battery(True, LEAST_PERCENT - 1), True),
        (Battery(False, 3), False),
    ],
)
def test_a_build_rests_on_a_battery_that_is_low_and_in_use(battery: Battery, waits: bool) -> None:
    assert bool(reason_to_wait(battery, on_battery=False)) is waits
    assert reason_to_wait(battery, on_battery=True) == ""


class Clock:
    """The test's time."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_news_are_some_a_second_but_the_first_and_last_of_a_stage_are_always_told() -> None:
    clock = Clock()
    pace = News(clock)
    told = [pace.take("convert", "convert", done, 100, "") for done in range(101)]
    assert [news.done for news in told if news] == [0, 100]
    clock.now += 2 * EVERY_S
    assert pace.take("convert", "convert", 50, 100, "") is not None
    assert pace.take("convert", "quality", 0, 10, "") is not None
    assert pace.take("extract", "quality", 0, 10, "") is not None


def test_the_time_left_goes_by_what_was_done_since_the_stage_was_seen_first() -> None:
    clock = Clock()
    pace = News(clock)
    first = pace.take("train", "train", 40, 100, "")
    assert first is not None
    assert first.eta_s == 0.0
    clock.now += 10
    second = pace.take("train", "train", 41, 100, "")
    assert second is not None
    assert second.eta_s == 0.0, "too little was seen"
    clock.now += 10
    third = pace.take("train", "train", 60, 100, "")
    assert third is not None
    assert third.eta_s == pytest.approx(40.0)
    assert third.progress == 0.6


def test_a_stage_is_told_beside_its_step() -> None:
    pace = News(Clock())
    told = pace.take("train", "data", 1, 4, "100 tokens/s")
    assert told == Told("train", "data", 1, 4, 0.0, "100 tokens/s")
    told = pace.take("train", "measure", 0, 0, "")
    assert told == Told("train", "measure")
    assert told is not None
    assert told.progress == 0.0


def test_a_worker_rests_while_the_battery_is_low_and_looks_at_it_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, said, looks = Clock(), [], []

    def read() -> Battery:
        looks.append(clock.now)
        return Battery(True, 20 if len(looks) in (1, 2) else 80)

    def rest(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(jobs, "read_battery", read)
    monkeypatch.setattr(jobs, "say", said.append)
    monkeypatch.setattr("mtplxd.forge.jobs.time.monotonic", clock)
    monkeypatch.setattr("mtplxd.forge.jobs.time.sleep", rest)
    tell = _Voice(News(clock), on_battery=False).of("convert")
    tell("convert", 1, 4, "")
    assert said[0]["message"] == ""
    assert {message["message"] for message in said[1:]} == {
        reason_to_wait(Battery(True, 20), on_battery=False)
    }
    assert len(looks) == 3
    assert clock.now >= looks[0] + 2 * LOOK_S
    clock.now += LOOK_S / 2
    tell("convert", 2, 4, "")
    assert len(looks) == 3
    clock.now += LOOK_S
    tell("convert", 3, 4, "")
    assert len(looks) == 4


def test_a_worker_that_was_told_to_go_on_never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> Battery:
        raise AssertionError("nobody should look")

    said: list[Any] = []
    monkeypatch.setattr(jobs, "read_battery", read)
    monkeypatch.setattr(jobs, "say", said.append)
    _Voice(News(Clock()), on_battery=True).of("convert")("convert", 1, 1, "")
    assert said[0]["memory"] > 1 << 20


def test_a_worker_nobody_listens_to_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtplxd.errors import Cancelled

    def deaf(_message: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(jobs, "say", deaf)
    with pytest.raises(Cancelled, match="nobody listens"):
        _Voice(News(Clock()), on_battery=True).of("convert")("convert", 0, 1, "")


def test_a_build_may_be_the_first_that_a_full_memory_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtplxd.platform import priority

    monkeypatch.setattr(priority.os, "nice", lambda by: by)
    score = tmp_path / "oom_score_adj"
    priority.step_back_process(score)
    assert not score.exists(), "a system without it gets none"
    score.write_text("0")
    priority.step_back_process(score)
    assert int(score.read_text()) > 0


def test_matrix_products_in_the_background_leave_half_of_the_cores() -> None:
    from mtplxd.platform.priority import background_threads

    assert [background_threads(cores) for cores in (1, 2, 8)] == [1, 1, 4]
