"""A finished step is not run again while its inputs and its product are what they were; anything else is."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mtplxd.errors import Cancelled, DataLoss, Unavailable
from mtplxd.forge.pipeline import run_steps
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.runs import create_run
from mtplxd.forge.work import Lost, Made, Step, Work
from mtplxd.paths import Home, resolve_hugging_face
from support.fake_forge import FAKE


class Rig:
    """Two steps: the second takes what the first made."""

    def __init__(self, home: Home) -> None:
        self.ran: list[str] = []
        self.text, self.asked, self.wanted, self.good = "one", "a", True, True
        self.end: Callable[[], None] = lambda: None
        self.resumes = False
        run = create_run(home, BuildRecipe(source="org/model", name="mine"), 1.8e9, "0a1b2c")
        self.run = run
        self.home = home
        self._now = 0.0

    @property
    def steps(self) -> list[Step]:
        return [
            Step("first", lambda _: self.asked, self._first, resumes=self.resumes),
            Step("second", lambda work: work.product("first"), self._second, wanted=lambda _: self.wanted,
                 holds=lambda _: self.good),
        ]  # fmt: skip

    def go(self, **changes: Any) -> Work:
        work = Work(
            self.run, self.run.recipe(), self.run.state(), self.home, resolve_hugging_face({}), FAKE,
            lambda *_: None, lambda: False,
        )  # fmt: skip
        return run_steps(replace(work, **changes), self.steps, self._clock)

    def _clock(self) -> float:
        self._now += 1
        return self._now

    def _first(self, work: Work, layer: Path) -> Made:
        assert work.run.state().steps["first"].status == "running", "it is recorded before it begins"
        self.ran.append("first")
        self.left = sorted(path.name for path in layer.iterdir())
        (layer / "text").write_text(self.text)
        (layer / "below").mkdir(exist_ok=True)
        (layer / "below" / "more").write_text("more")
        self.end()
        return Made({"length": len(self.text)})

    def _second(self, work: Work, layer: Path) -> Made:
        self.ran.append("second")
        text = (work.place("first") / "text").read_text()
        (layer / "shout").write_text(text.upper() * work.result("first")["length"])
        (layer / "scrap").write_text("not a product")
        return Made(names=["shout"])


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    home = Home(tmp_path / "home")
    home.create()
    return Rig(home)


def test_steps_run_in_order_and_their_products_are_read_back(rig: Rig) -> None:
    work = rig.go()
    assert rig.ran == ["first", "second"]
    assert rig.run.state() == work.state
    first, second = work.state.steps["first"], work.state.steps["second"]
    assert set(first.files) == {"text", "below/more"}
    assert set(second.files) == {"shout"}
    assert first.files["text"].sha256.startswith("7692c3ad3540bb80")
    assert (first.begun, first.began, first.ended) == (1, 1.0, 2.0)


def test_nothing_finished_runs_twice(rig: Rig) -> None:
    rig.go()
    rig.go()
    assert rig.ran == ["first", "second"]


@pytest.mark.parametrize("harm", ["changed", "gone", "touched"])
def test_a_product_that_is_not_what_it_was_is_made_anew(rig: Rig, harm: str) -> None:
    rig.go()
    file = rig.run.layer("first") / "text"
    if harm == "gone":
        file.unlink()
    elif harm == "changed":
        file.write_text("two, longer")
    else:
        os.utime(file, (1, 1))
    rig.go()
    assert rig.ran == ["first", "second", "first"], "the second depends on bytes alone, and they are the same"


def test_other_inputs_run_a_step_and_other_products_those_after_it(rig: Rig) -> None:
    rig.go()
    rig.asked = "b"
    rig.go()
    assert rig.ran == ["first", "second", "first"]
    rig.asked, rig.text = "c", "three"
    rig.go()
    assert rig.ran == ["first", "second", "first", "first", "second"]


def test_what_files_do_not_show_counts_too(rig: Rig) -> None:
    rig.go()
    rig.good = False
    rig.go()
    assert rig.ran == ["first", "second", "second"]


def test_a_step_that_is_not_wanted_leaves_no_record(rig: Rig) -> None:
    rig.wanted = False
    assert "second" not in rig.go().state.steps


@pytest.mark.parametrize("resumes", [False, True])
def test_what_an_interrupted_step_left_is_there_only_for_one_that_goes_on_with_it(
    rig: Rig, resumes: bool
) -> None:
    def fail() -> None:
        raise Unavailable("the network is gone")

    rig.resumes, rig.end = resumes, fail
    with pytest.raises(Unavailable):
        rig.go()
    assert rig.run.state().steps["first"].status == "running"
    rig.end = lambda: None
    rig.go()
    assert rig.left == (["below", "text"] if resumes else [])
    assert rig.run.state().steps["first"].begun == 2


def test_what_was_left_of_other_inputs_is_never_gone_on_with(rig: Rig) -> None:
    rig.resumes = True
    rig.go()
    rig.asked = "b"
    rig.go()
    assert rig.left == []


def test_a_verdict_ends_the_run_and_is_no_finished_step(rig: Rig) -> None:
    def lose() -> None:
        raise Lost("quality_failed", ["too far from its source"], {"top1": 0.2})

    rig.end = lose
    state = rig.go().state
    assert (state.status, state.verdict, state.reasons) == (
        "over",
        "quality_failed",
        ("too far from its source",),
    )
    assert state.result("first") == {"top1": 0.2}
    assert rig.ran == ["first"]
    rig.go()
    assert rig.ran == ["first"], "what is over stays so"
    rig.end = lambda: None
    rig.run.write(rig.run.state().begin(9))
    rig.go()
    assert rig.ran == ["first", "first", "second"]


def test_a_step_that_did_not_make_what_it_says_is_not_finished(rig: Rig) -> None:
    rig.end = lambda: (rig.run.layer("second")).mkdir()
    original = rig._second

    def nothing(work: Work, layer: Path) -> Made:
        original(work, layer)
        return Made(names=["missing"])

    rig._second = nothing  # type: ignore[method-assign]
    with pytest.raises(DataLoss, match="did not make"):
        rig.go()
    assert not rig.run.state().steps["second"].done


def test_a_cancel_while_it_is_read_back_leaves_it_unfinished(rig: Rig) -> None:
    with pytest.raises(Cancelled):
        rig.go(cancelled=lambda: True)
    assert not rig.run.state().steps["first"].done


def test_a_step_never_sees_what_later_ones_once_made(rig: Rig) -> None:
    seen: list[bool] = []

    def calibrate(work: Work, layer: Path) -> Made:
        del layer
        seen.append("train" in work.state.steps)
        return Made(names=())

    def train(work: Work, layer: Path) -> Made:
        del work
        (layer / "head").write_text("trained")
        return Made()

    def go() -> Work:
        steps = [Step("calibrate", lambda _: rig.asked, calibrate), Step("train", lambda _: "", train)]
        work = Work(
            rig.run, rig.run.recipe(), rig.run.state(), rig.home, resolve_hugging_face({}), FAKE,
            lambda *_: None, lambda: False,
        )  # fmt: skip
        return run_steps(work, steps, rig._clock)

    go()
    rig.asked = "b"
    assert go().product("train"), "the record itself stays: its own inputs are the same"
    assert seen == [False, False]
