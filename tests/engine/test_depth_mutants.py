"""Depth controllers with one rule broken each: every one of them fails what is asked of the whole one."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from mtplxd.engine.depth import DepthController, DraftRoom, RoundSeen, RowSeen, acceptance, cost
from mtplxd.engine.depth import controller as controller_module
from mtplxd.engine.depth.acceptance import Acceptance, Tally, Watched
from mtplxd.engine.depth.controller import DepthController as Controller
from mtplxd.engine.depth.cost import CostTable, Samples
from mtplxd.engine.depth.fit import Fit
from mtplxd.engine.depth.probing import Budget, Pauses, Try
from mtplxd.engine.depth.rates import Rates
from support.depth_sim import CHAT, CODE, CURVES, DEAD, DEPTH_MAX, Machine, Texts, best_rate, play

Patch = pytest.MonkeyPatch


def clock(curve: str = "measured", seed: int = 1, **more: float) -> Machine:
    return Machine(CURVES[curve], random.Random(seed), **{"noise": 0.1, **more})


def share_of_best(texts: Texts, curve: str, rows: int, rounds: int, before: int = 0, **more: float) -> float:
    controller, machine = DepthController(DEPTH_MAX), clock(curve, **more)
    play(controller, texts, machine, rows, before)
    played = play(controller, texts, machine, rows, rounds, before)
    return played.expected / played.seconds / best_rate(texts, CURVES[curve], rows, before + rounds)


def revives() -> None:
    texts: Texts = lambda _, at: DEAD if at < 150 else CODE  # noqa: E731
    controller, machine = DepthController(DEPTH_MAX), clock()
    play(controller, texts, machine, 2, 200)
    assert min(play(controller, texts, machine, 2, 10, 200).widths) > 0


def gives_up() -> None:
    texts: Texts = lambda _, at: CODE if at < 300 else DEAD  # noqa: E731
    controller, machine = DepthController(DEPTH_MAX), clock()
    play(controller, texts, machine, 4, 350)
    assert play(controller, texts, machine, 4, 40, 350).widths.count(0) >= 32


def follows_from_near_to_far() -> None:
    """What is seen of the first drafts tells of the further ones, whose figures are old."""
    known, luck = Acceptance(3), random.Random(1)
    for _ in range(200):
        known.see([RowSeen("a", 3, 3, sum(luck.random() < 0.6 for _ in range(3)))])
    usual = known.chances("b")[2]
    for _ in range(40):
        known.see([RowSeen("b", 1, 1, 1)])
    better = known.chances("b")[2]
    for _ in range(40):
        known.see([RowSeen("b", 1, 1, 0)])
    assert known.chances("b")[2] + 0.1 < usual < better - 0.05


def rests() -> None:
    for curve, rows, most in (("flat", 1, 16), ("steep", 4, 4)):
        controller, machine = DepthController(DEPTH_MAX), clock(curve)
        play(controller, lambda *_: DEAD, machine, rows, 100)
        tried = sum(width > 0 for width in play(controller, lambda *_: DEAD, machine, rows, 200, 100).widths)
        assert 0 < tried <= most


def stays() -> None:
    """Two depths that pay the same within a thousandth: whichever is held is kept."""
    assert sum(map(switches, range(5))) == 0


def switches(seed: int) -> int:
    controller, ups, widths = DepthController(1), random.Random(seed), []
    for _ in range(400):
        [width, *_] = controller.choose([DraftRoom(str(row), 1) for row in range(8)])
        seen = tuple(RowSeen(str(row), width, width, width * (row % 2)) for row in range(8))
        controller.observe(RoundSeen(seen, (0.1, 0.15)[width] * ups.uniform(0.97, 1.03)))
        widths.append(controller._held["", 8].width)
    return sum(a != b for a, b in pairwise(widths[50:]))


def learns_costs() -> None:
    made = CostTable()
    for seconds in (9.0, 0.1, 0.1, 1.0, 0.1, 0.1):
        made.see(1, 0, seconds)
    assert made.seconds(1, 0) == pytest.approx(0.1, rel=0.1)
    for at in range(410):
        made.see(1, int(4 < at < 405), 0.1 if at < 400 else 0.2)
    assert made.seconds(1, 0) > 0.17


def keeps_cold_calls_out() -> None:
    made = CostTable()
    made.see(1, 0, 9.0)
    assert made.seconds(1, 0) == 0
    for _ in range(3):
        made.see(1, 0, 0.1)
    made.see(1, 1, 0.5)
    made.see(1, 1, 0.5)
    assert made.seconds(1, 1) < 0.2
    assert not made.known(1, 1)


def looks_again() -> None:
    made = CostTable()
    for at in range(600):
        made.see(1, int(at > 5), 0.1)
    assert made.stale(1, 0)
    assert not made.stale(1, 1)
    for _ in range(600):
        made.see(8, 1, 0.1)
    assert not made.stale(1, 1)


def fits_between() -> None:
    found = Fit({(1, 1): (0.2, 9), (1, 3): (0.21, 9), (8, 0): (0.1, 9)})
    assert 0.2 <= found.seconds((1, 2)) <= 0.21
    law = CURVES["measured"]
    found = Fit({shape: (law(*shape), 20) for shape in [(1, 0), (1, 1), (1, 3), (4, 0), (4, 2)]})
    assert found.seconds((4, 1)) == pytest.approx(law(4, 1), rel=0.12)


def forgets() -> None:
    known = Acceptance(2)
    for _ in range(60):
        known.see([RowSeen("a", 2, 2, 0), RowSeen("b", 2, 2, 2), RowSeen("c", 2, 2, 2)])
    assert known.chances("a")[0] < 0.3
    known.forget("a")
    assert known.chances("a")[0] > 0.5


def leans() -> None:
    known = Acceptance(2)
    for _ in range(60):
        known.see([RowSeen("a", 2, 2, 2)])
    known.see([RowSeen("b", 2, 2, 0)])
    assert known.chances("b")[0] > 0.7


def counts_what_was_reached() -> None:
    known = Acceptance(3)
    for at in range(300):
        known.see([RowSeen("a", 3, 3, 3 * (at % 2))])
    first, *later = known.chances("a")
    assert first == pytest.approx(0.5, abs=0.1)
    assert min(later) > 0.85


def counts_what_was_decided() -> None:
    controller = DepthController(DEPTH_MAX)
    controller.observe(RoundSeen((RowSeen("a", 4, 1, 4),), 0.1))
    assert controller.state()["acceptance"] == {"reached": [1.0], "passed": [1.0]}


def follows() -> None:
    known = Acceptance(1)
    for _ in range(200):
        known.see([RowSeen("a", 1, 1, 1)])
    for _ in range(12):
        known.see([RowSeen("a", 1, 1, 0)])
    assert known.chances("a")[0] < 0.4


def spares_those_that_pass_by() -> None:
    """So many rows are there for twelve rounds: what plain decoding takes is not worth a look."""
    controller, machine = DepthController(DEPTH_MAX), clock(noise=0.02)
    play(controller, lambda *_: CODE, machine, 1, 150)
    for rows in (2, 4, 8):
        assert 0 not in play(controller, lambda *_: CODE, machine, rows, 12).widths


def knows_its_forms() -> None:
    controller = DepthController(DEPTH_MAX)
    for form, seconds in (("", 0.1), ("fixed", 0.4)):
        for _ in range(10):
            controller.observe(RoundSeen((RowSeen("a", 1, 1, 1),), seconds, form))
    assert controller._table("").seconds(1, 1) == pytest.approx(0.1, rel=0.1)
    assert controller._table("fixed").seconds(1, 1) == pytest.approx(0.4, rel=0.1)


def leaves_out_what_is_not_steady() -> None:
    """The first plain round after one that drafts has nothing launched ahead, and takes longer."""
    controller = DepthController(DEPTH_MAX)
    for at in range(20):
        controller.observe(RoundSeen((RowSeen("a", at % 2, at % 2, 0),), 0.5))
    for _ in range(6):
        controller.observe(RoundSeen((RowSeen("a", 0, 0, 0),), 0.1))
    assert controller._table("").seconds(1, 0) == pytest.approx(0.1, rel=0.1)


def minds_wide_neighbours() -> None:
    controller = DepthController(DEPTH_MAX)
    play(controller, lambda *_: CHAT, clock("flat"), 2, 200)
    assert min(controller.choose([DraftRoom("0", 8), DraftRoom("x", 8, 7)])) >= 7


def starts_with_what_was_learnt() -> None:
    controller = DepthController(DEPTH_MAX)
    play(controller, lambda *_: CODE, clock("flat"), 1, 200)
    heir = DepthController(DEPTH_MAX, controller.state())
    assert heir.choose([DraftRoom("new", 8)])[0] >= 5


def replace(owner: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(owner, name, value)


def add_all(self: Tally, decided: int, accepted: int) -> None:
    while len(self.reached) < decided:
        self.reached.append(0.0)
        self.passed.append(0.0)
    for position in range(decided):
        self.reached[position] += 1
        self.passed[position] += position < accepted


def mean_added(self: Samples, at: float, seconds: float) -> None:
    self.kept.append((at, seconds))
    self.figure = sum(s for _, s in self.kept) / len(self.kept)


def seen_as_drafted(self: Acceptance, rows: Any) -> None:
    real_see(self, [RowSeen(row.key, row.drafted, row.drafted, row.accepted) for row in rows])


def see_as_one(self: CostTable, rows: int, width: int, seconds: float | None) -> None:
    real_time(self, rows, width, seconds)
    for other in self._rounds:
        self._rounds[other] += other != rows


def filled_at_once(self: Budget) -> None:
    self.left = 3.0


def choose_alone(self: Controller, rows: Any, _given: int, room: int, form: str) -> int:
    return real_choice(self, rows, 0, room, form)


real_see, real_time, real_choice = Acceptance.see, CostTable.see, Controller._choose_width

MUTANTS: dict[str, tuple[Callable[[Patch], None], Callable[[], None]]] = {
    "tries never": (replace(Controller, "_find_try", lambda *_: None), revives),
    "tries as soon as one is over": (replace(Pauses, "over", lambda *_, **__: True), rests),
    "tries whatever they lose": (replace(Pauses, "pay", lambda *_: True), rests),
    "takes tries for free": (replace(Rates, "lost", lambda *_: 0.0), rests),
    "changes its mind for anything": (replace(Controller, "_reconsider", lambda *_: None), gives_up),
    "has no hysteresis": (replace(controller_module, "HYSTERESIS", 0.0), stays),
    "counts the first call of a shape": (replace(cost, "COLD_CALLS", 0), keeps_cold_calls_out),
    "takes a mean for a median": (replace(Samples, "add", mean_added), learns_costs),
    "never forgets old seconds": (replace(cost, "HALF_LIFE", 1e9), learns_costs),
    "takes one sample for a figure": (replace(cost, "ENOUGH", 1), keeps_cold_calls_out),
    "never looks again": (replace(cost, "STALE", 10**9), looks_again),
    "takes a shape's age by all rounds": (replace(CostTable, "see", see_as_one), looks_again),
    "lets the fit say what it likes": (replace(Fit, "_guess", Fit._predict), fits_between),
    "never drops a row": (replace(Acceptance, "forget", lambda *_: None), forgets),
    "does not lean rows on the pack": (replace(acceptance, "PACK_WEIGHT", 0.01), leans),
    "counts what was not reached": (replace(Tally, "add", add_all), counts_what_was_reached),
    "counts what was not decided": (replace(Acceptance, "see", seen_as_drafted), counts_what_was_decided),
    "does not start anew": (replace(Watched, "_contradicted", lambda _: False), follows),
    "takes far drafts for what they were": (
        replace(acceptance, "_log_odds", lambda _: 0.0),
        follows_from_near_to_far,
    ),
    "tries out every number of rows": (replace(Budget, "fill", filled_at_once), spares_those_that_pass_by),
    "mixes the forms of forwards": (
        replace(Controller, "_table", lambda self, _: self._costs.setdefault("", CostTable())),
        knows_its_forms,
    ),
    "times what is not steady": (
        replace(Controller, "_is_steady", lambda *_: True),
        leaves_out_what_is_not_steady,
    ),
    "forgets wide neighbours": (replace(Controller, "_choose_width", choose_alone), minds_wide_neighbours),
    "leaves its seconds behind": (replace(CostTable, "adopt", lambda *_: None), starts_with_what_was_learnt),
    "keeps at a try for good": (replace(Try, "played", lambda *_: True), rests),
}


LAWS = list(dict.fromkeys(law for _, law in MUTANTS.values()))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_whole_controller_does_what_is_asked(law: Callable[[], None]) -> None:
    law()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_controller_without_a_rule_is_found_out(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks, law = MUTANTS[mutant]
    breaks(monkeypatch)
    with pytest.raises(AssertionError):
        law()
