"""A whole tuning on a machine that is made up: order, lengths, drift, rows, the curve; no model, no clock."""

from __future__ import annotations

import pytest
from mtplxd.engine.depth import DepthController
from mtplxd.engine.events import Stats
from mtplxd.errors import Cancelled, FailedPrecondition, InvalidArgument
from mtplxd.tune.decision import decide
from mtplxd.tune.effort import FULL, QUICK, Effort, choose_tokens, settle_candidates, settle_prompts
from mtplxd.tune.measure import Poll, Progress
from mtplxd.tune.paying import even_share, judge_paying
from mtplxd.tune.plan import AUTO, Step, plan_tuning
from mtplxd.tune.prompts import Prompt
from mtplxd.tune.rows import curve_of, tune_rows
from mtplxd.tune.summary import Run
from mtplxd.tune.tuning import Asked, Tuning, run_tuning

PROMPTS = tuple(Prompt(at, "text", at) for at in range(8))
DEPTHS = (0, 1, 2, AUTO)
ANY = Effort(1000.0, 4, 64)


class Machine:
    """Rounds of a tenth of a second and a hundredth a draft, every second draft accepted; slower from `slow_at` on."""

    def __init__(self, slow_at: int = 10_000, slower: float = 1.0) -> None:
        self.now, self.made = 0.0, list[Step]()
        self._slow_at, self._slower = slow_at, slower

    def answer(self, step: Step, poll: Poll) -> Run:
        if origin := poll():
            raise Cancelled("cancelled", origin)
        depth = 1 if step.depth == AUTO else step.depth
        tokens_a_round = 1 + sum(0.5**at for at in range(1, depth + 1))
        slow = self._slower if len(self.made) >= self._slow_at else 1.0
        seconds = 0.1 * (1 + 0.1 * depth) * slow
        rounds = max(1, round(step.tokens / tokens_a_round))
        self.made.append(step)
        self.now += 0.5 + seconds * rounds
        judged = (rounds,) * depth
        accepted = tuple(round(rounds * 0.5 ** (at + 1)) for at in range(depth))
        stats = Stats(rounds=rounds, judged_by_position=judged, accepted_by_position=accepted, depth=depth)
        last = 0.5 + (step.tokens - 1) / tokens_a_round * seconds
        return Run(step.prompt, step.depth, step.tokens, 0.5, last, stats, round_ms=1e3 * seconds)

    def clock(self) -> float:
        return self.now


def tune(machine: Machine, tokens: int = 20, effort: Effort = ANY) -> Tuning:
    asked = Asked(PROMPTS, DEPTHS, tokens, effort)
    return run_tuning(machine, asked, lambda _: None, lambda: None, machine.clock)


def test_every_prompt_meets_every_depth_between_three_looks_at_the_machine() -> None:
    machine = Machine()
    found = tune(machine)
    warm = machine.made[: 1 + len(DEPTHS)]
    assert not any(step.timed for step in warm)
    timed = machine.made[len(warm) :]
    assert len(timed) == 8 * 4 + 3
    assert [timed[at] for at in (0, 17, 34)] == [Step(0, 0, 0, 20)] * 3
    pairs = [step for at, step in enumerate(timed) if at not in (0, 17, 34)]
    assert sorted((step.prompt, step.depth) for step in pairs) == sorted(
        (prompt, depth) for prompt in range(8) for depth in DEPTHS
    )
    for at in range(8):
        assert {step.prompt for step in pairs[4 * at : 4 * at + 4]} == {at}
        assert {step.seed for step in pairs[4 * at : 4 * at + 4]} == {at}
    assert {pairs[4 * at].depth for at in range(8)} == set(DEPTHS)
    assert found.order == tuple(step.name for step in timed)


def test_looks_at_the_machine_are_in_no_pair() -> None:
    found = tune(Machine())
    assert [row.depth for row in found.rows] == [0, 1, 2, AUTO]
    rounds = 8 * 20
    assert found.rows[0].rounds == rounds


def test_the_made_up_machine_s_gain_is_found() -> None:
    found = tune(Machine())
    one = found.rows[1]
    assert one.interval is not None
    assert one.interval.ratio == pytest.approx(1.5 / 1.1, rel=1e-6)
    assert decide(found.rows, found.drift).depth == 2


def test_a_machine_that_slows_down_is_seen_by_its_plain_rounds() -> None:
    found = tune(Machine(slow_at=20, slower=1.3))
    assert [point.tok_s for point in found.drift.points] == pytest.approx([10.0, 10.0 / 1.3, 10.0 / 1.3])
    assert found.drift.throttled
    assert found.drift.points[0].at_s == 0.0
    assert decide(found.rows, found.drift).verdict == "throttled"


def test_answers_are_as_long_as_fit_unless_asked_otherwise() -> None:
    machine = Machine()
    found = tune(machine, tokens=0, effort=Effort(36 * 2.5, 4, 64))
    # 36 answers of full length in 90 s are 2.5 s each, half a second of it the prompt, ten tokens a second
    assert found.tokens == 20
    assert tune(Machine(), tokens=7).tokens == 7


@pytest.mark.parametrize(
    ("effort", "prefill_s", "tok_s", "tokens"),
    [
        (FULL, 0.6, 10.0, FULL.least + 21),
        (FULL, 30.0, 10.0, FULL.least),
        (FULL, 0.01, 500.0, FULL.most),
        (QUICK, 0.01, 500.0, QUICK.most),
    ],
)
def test_a_slow_machine_gets_short_answers_within_reason(
    effort: Effort, prefill_s: float, tok_s: float, tokens: int
) -> None:
    assert choose_tokens(0, effort, 44, prefill_s, tok_s) == tokens


def test_progress_goes_up_and_a_cancel_ends_it_before_the_next_answer() -> None:
    machine, said = Machine(), list[Progress]()
    asked = Asked(PROMPTS, DEPTHS, 20, ANY)

    def poll() -> str | None:
        return "client" if len(machine.made) == 9 else None

    with pytest.raises(Cancelled, match="client"):
        run_tuning(machine, asked, said.append, poll, machine.clock)
    assert len(machine.made) == 9
    assert [step.done for step in said] == sorted(step.done for step in said)
    assert said[-1].total == 35


def test_the_plan_looks_at_the_machine_in_the_middle_of_an_odd_number_too() -> None:
    plan = plan_tuning(PROMPTS[:5], (0, 1), 4)
    timed = [step for step in plan.steps if step.timed]
    assert plan.checks == (0, 7, 12)
    assert all(timed[at] == Step(0, 0, 0, 4) for at in plan.checks)


@pytest.mark.parametrize(
    ("wanted", "auto", "quick", "depths"),
    [
        ((), False, False, (0, 1, 2, 3, AUTO)),
        ((), False, True, (0, 1, 2, 3)),
        ((2,), False, False, (0, 2)),
        ((0, 1, 1), True, True, (0, 1, AUTO)),
        ((), True, True, (0, AUTO)),
    ],
)
def test_plain_decoding_is_always_a_candidate(
    wanted: tuple[int, ...], auto: bool, quick: bool, depths: tuple[int, ...]
) -> None:
    assert settle_candidates(wanted, 8, auto=auto, quick=quick, name="m") == (depths, ())


def test_depths_beyond_the_head_are_clipped_and_said() -> None:
    assert settle_candidates((), 1, auto=False, quick=False, name="m")[0] == (0, 1, AUTO)
    depths, notes = settle_candidates((1, 5), 1, auto=False, quick=False, name="m")
    assert depths == (0, 1)
    assert notes == ("depth 5 clipped to 1: the head's limit is 1",)


def test_what_leaves_nothing_to_choose_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="plain decoding alone"):
        settle_candidates((0,), 8, auto=False, quick=False, name="m")
    with pytest.raises(FailedPrecondition, match="no head to tune"):
        settle_candidates((), 0, auto=True, quick=False, name="m")
    assert settle_prompts(0) == 8
    for few in (1, 7):
        with pytest.raises(InvalidArgument, match="too few prompts"):
            settle_prompts(few)


def test_the_curve_starts_a_controller_at_the_depth_that_won() -> None:
    from mtplxd.engine.depth import DraftRoom

    curve = curve_of(tune(Machine()).rows)
    assert curve["seconds"] == {"": [[1, 0, 0.1], [1, 1, pytest.approx(0.11)], [1, 2, pytest.approx(0.12)]]}
    reached, passed = curve["acceptance"]["reached"], curve["acceptance"]["passed"]
    assert [round(yes / all_, 1) for yes, all_ in zip(passed, reached, strict=True)] == [0.5, 0.5]
    fresh = DepthController(8, start=1)
    fresh.adopt(curve)
    assert fresh.choose([DraftRoom("new", 8)])[0] >= 2


def test_rows_without_answers_teach_nothing() -> None:
    assert curve_of(tune_rows(())) == {
        "version": 1,
        "acceptance": {"reached": [], "passed": []},
        "seconds": {"": []},
    }


def test_whether_drafting_pays_follows_from_the_curve() -> None:
    found = judge_paying(curve_of(tune(Machine()).rows))
    assert found is not None
    assert (found.depth, found.pays) == (2, True)
    assert found.ratio == pytest.approx(1.75 / 1.2, rel=0.02)
    assert found.acceptance == pytest.approx(0.5, abs=0.02)
    # 1 + a + a² = 1.2
    assert found.break_even == pytest.approx((-1 + 1.8**0.5) / 2, abs=1e-6)


def test_where_rounds_cost_more_than_drafts_give_it_does_not_pay() -> None:
    state = {
        "acceptance": {"reached": [100.0], "passed": [85.0]},
        "seconds": {"": [[1, 0, 0.1], [1, 1, 0.2]]},
    }
    found = judge_paying(state)
    assert found is not None
    assert not found.pays
    assert (found.ratio, found.break_even) == (pytest.approx(0.925), pytest.approx(1.0))


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"acceptance": {"reached": [100.0], "passed": [85.0]}, "seconds": {"": [[1, 1, 0.1]]}},
        {"acceptance": {"reached": [100.0], "passed": [85.0]}, "seconds": {"": [[1, 0, 0.1], [1, 2, 0.1]]}},
        {"acceptance": {"reached": [100.0], "passed": [85.0]}, "seconds": {"": [[2, 0, 0.1], [2, 1, 0.1]]}},
        {"acceptance": {"reached": [3.0], "passed": [2.0]}, "seconds": {"": [[1, 0, 0.1], [1, 1, 0.1]]}},
    ],
)
def test_too_little_known_says_nothing(state: dict[str, object]) -> None:
    assert judge_paying(state) is None


def test_an_even_share_is_the_one_that_gives_as_many_tokens() -> None:
    assert even_share(1.0, 3) == pytest.approx(0.0, abs=1e-9)
    assert even_share(4.0, 3) == pytest.approx(1.0)
    assert even_share(9.0, 3) == pytest.approx(1.0)
    assert even_share(1.5, 1) == pytest.approx(0.5)
