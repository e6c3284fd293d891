"""The order of answers, what is kept of them, progress, and a cancel between them; no model, no clock of its own."""

from __future__ import annotations

import pytest
from mtplxd.engine.events import Stats
from mtplxd.errors import Cancelled
from mtplxd.tune.measure import Poll, Progress, measure
from mtplxd.tune.plan import Step, plan_steps
from mtplxd.tune.prompts import Prompt
from mtplxd.tune.summary import Run

PROMPTS = [Prompt(at, "text", at) for at in range(3)]


class Machine:
    """A runner whose answers take a second a token on the clock it keeps."""

    def __init__(self, degraded: tuple[str, ...] = ()) -> None:
        self.now = 0.0
        self.made: list[Step] = []
        self._degraded = degraded

    def answer(self, step: Step, poll: Poll) -> Run:  # noqa: ARG002
        self.made.append(step)
        self.now += step.tokens
        stats = Stats(rounds=step.tokens, degraded=self._degraded if step.depth else ())
        return Run(step.prompt, step.depth, step.tokens, 0.0, float(step.tokens), stats)

    def clock(self) -> float:
        return self.now


def test_warm_answers_are_made_and_thrown_away() -> None:
    machine, steps = Machine(), plan_steps(PROMPTS, (0, 2), 20)
    found = measure(machine, steps, lambda _: None, lambda: None, machine.clock)
    assert machine.made == steps
    assert len(found.runs) == 6
    assert all(run.tokens == 20 for run in found.runs)
    assert found.order == ("0:0", "0:2", "1:2", "1:0", "2:0", "2:2")
    assert [(run.prompt, run.depth) for run in found.runs] == [
        tuple(map(int, name.split(":"))) for name in found.order
    ]


def test_progress_counts_timed_answers_and_knows_when_it_ends() -> None:
    machine, said = Machine(), list[Progress]()
    steps = plan_steps(PROMPTS, (0, 1), 20)
    measure(machine, steps, said.append, lambda: None, machine.clock)
    assert [step.done for step in said] == [0, 0, 0, 1, 2, 3, 4, 5, 6]
    assert {step.total for step in said} == {6}
    # a second a token: what is left is what the plan still holds
    assert [step.eta_s for step in said[1:]] == [136.0, 120.0, 100.0, 80.0, 60.0, 40.0, 20.0, 0.0]


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_cancel_between_answers_ends_it_before_the_next(after: int) -> None:
    machine = Machine()

    def poll() -> str | None:
        return "client" if len(machine.made) >= after else None

    with pytest.raises(Cancelled, match="by client"):
        measure(machine, plan_steps(PROMPTS, (0, 1), 20), lambda _: None, poll, machine.clock)
    assert len(machine.made) == after


def test_answers_that_turned_plain_are_told() -> None:
    machine = Machine(("head_non_finite",))
    found = measure(machine, plan_steps(PROMPTS, (0, 2), 4), lambda _: None, lambda: None, machine.clock)
    assert found.notes == ("depth 2: 3 answers turned to plain decoding, head_non_finite",)
