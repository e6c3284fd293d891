"""What is wrong with one row of a round is told of that row alone; the others make the texts they make without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mtplxd.engine import round as rounds
from mtplxd.engine import sampling
from mtplxd.engine.events import GRAMMAR, NON_FINITE
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, SamplerSettings
from mtplxd.engine.round import HEAD_FAILED, HEAD_NON_FINITE, Landing, land
from mtplxd.engine.row import Row
from mtplxd.platform.mlx import Array, mx
from support.churn import Crowd, Spec
from support.ragged import assert_settled
from support.table_matcher import LanguageMatcher, TableLanguage
from support.table_model import TableHead, TableTarget

IDS = 24
LANGUAGE = TableLanguage(
    moves=tuple({token: (token + state) % 3 for token in range(state, IDS, 2)} for state in range(3)),
    final=frozenset(),
    size=IDS,
)
HEALTHY = [
    Spec((5, 6), SamplerSettings(0.0), 3),
    Spec((7, 1, 2, 3, 9, 10, 11), SamplerSettings(0.8, top_p=0.9, seed=1, acceptance=TOKEN), 2),
    Spec((3, 3), SamplerSettings(1.1, seed=2, acceptance=BLOCK, repetition_penalty=1.2), 4, LANGUAGE.start),
    Spec((5, 5, 5), SamplerSettings(0.9, seed=3, acceptance=COUPLED), 1),
]
FAULTY = Spec((9, 4, 4), SamplerSettings(1.0, seed=9, acceptance=BLOCK), 2)
PLACES = (0, 2, 4)
ROUNDS = 12
each_place = pytest.mark.parametrize("place", PLACES)


def table() -> tuple[TableTarget, TableHead]:
    target = TableTarget(IDS, seed=1, spread=2.0)
    return target, TableHead(target, range(1, IDS), seed=2, spread=1.5)


def play_beside(
    model: tuple[TableTarget, TableHead], faulty: Spec | None, place: int, turns: int = ROUNDS
) -> tuple[list[list[int]], Row | None, list[Landing]]:
    """The healthy rows' texts, the faulty row, and what each round made of it until it broke or for all rounds."""
    crowd = Crowd(*model)
    specs = list(HEALTHY)
    if faulty:
        specs.insert(place, faulty)
    rows = [crowd.join(spec) for spec in specs]
    ill = rows[place] if faulty else None
    told = []
    for _ in range(turns):
        landings = crowd.play()
        if ill is not None and ill in crowd.rows:
            at = next(b for b, row in enumerate(crowd.rows) if row is ill)
            told.append(landings[at])
            others = [landing for landing in landings if landing is not landings[at]]
            assert all((landing.broken, landing.fault) == ("", "") for landing in others)
            if landings[at].broken:
                crowd.leave(at)
        assert_settled(crowd.batch)  # type: ignore[arg-type]
    healthy = [row for row in rows if row is not ill]
    assert all(row.degraded == [] for row in healthy)
    return [row.tokens for row in healthy], ill, told


class BreakingMatcher(LanguageMatcher):
    """Follows the language until it has consumed some tokens; then one of its methods raises."""

    method, left = "", 0

    @classmethod
    def after(cls, method: str, calls: int) -> Callable[[], BreakingMatcher]:
        def start() -> BreakingMatcher:
            matcher = cls(LANGUAGE)
            matcher.method, matcher.left = method, calls
            return matcher

        return start

    def _count(self, method: str) -> None:
        if method == self.method:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError(f"{method} does not work")

    def mask(self) -> np.ndarray:
        self._count("mask")
        return super().mask()

    def advance(self, token: int) -> bool:
        self._count("advance")
        return super().advance(token)

    def roll_back(self, count: int) -> None:
        self._count("roll_back")
        super().roll_back(count)


@each_place
@pytest.mark.parametrize(
    ("method", "calls"),
    [
        ("mask", 0),
        ("mask", 1),
        ("mask", 4),
        ("advance", 0),
        ("advance", 1),
        ("roll_back", 0),
        ("roll_back", 2),
    ],
)
def test_a_grammar_that_raises_breaks_its_row_alone(method: str, calls: int, place: int) -> None:
    faulty = replace(FAULTY, grammar=BreakingMatcher.after(method, calls))
    texts, _, told = play_beside(table(), faulty, place)
    assert told[-1].broken == GRAMMAR
    assert told[-1].finite
    assert texts == play_beside(table(), None, 0)[0]


def test_a_grammar_that_raises_beside_a_failing_head_is_told_too() -> None:
    target, head = table()
    crowd = Crowd(target, head)
    crowd.join(replace(FAULTY, grammar=BreakingMatcher.after("mask", 0)))
    crowd.join(HEALTHY[0])
    crowd.batch.head = Raising(head, lambda _: True)  # type: ignore[union-attr, assignment]
    landings = crowd.play()
    assert [landing.broken for landing in landings] == [GRAMMAR, ""]
    assert [landing.fault for landing in landings] == [HEAD_FAILED] * 2


@each_place
@pytest.mark.parametrize(("value", "after"), [(np.nan, 0), (np.inf, 3)])
def test_target_logits_that_are_no_numbers_break_their_row_alone(
    value: float, after: int, place: int
) -> None:
    model = table()
    _, ill, _ = play_beside(model, FAULTY, place)
    assert ill is not None
    spoiled = table()
    broken = ill.tokens[: len(FAULTY.prompt) + after]
    spoiled[0].table[spoiled[0].state_after(broken), 2] = value
    spoiled[0]._table = mx.array(spoiled[0].table, spoiled[0].dtype)
    texts, row, told = play_beside(spoiled, FAULTY, place)
    assert row is not None
    assert told[-1].broken == NON_FINITE
    assert not told[-1].finite
    assert row.tokens == broken[: len(row.tokens)]
    assert len(broken) - len(row.tokens) <= FAULTY.depth
    assert texts == play_beside(model, None, 0)[0]


def test_numbers_that_are_none_behind_a_neighbours_depth_break_nothing() -> None:
    """A row that drafts one token next to one that drafts four is judged by its own two positions."""
    target, head = table()
    crowd = Crowd(target, head)
    shallow = crowd.join(replace(HEALTHY[0], depth=1))
    crowd.join(replace(HEALTHY[1], depth=4))
    flight = crowd.launch()
    drafts = flight.drafts.ids.tolist()[0]
    land(crowd.batch, flight)  # type: ignore[arg-type]
    target.poison([*shallow.tokens, *drafts[:2]])
    again = Crowd(target, head)
    again.join(replace(HEALTHY[0], depth=1))
    again.join(replace(HEALTHY[1], depth=4))
    flight = again.launch()
    assert np.isnan(np.array(flight.raw)[0, 2]).all()
    assert [landing.broken for landing in again.finish(flight)] == ["", ""]


@each_place
def test_a_head_without_numbers_for_one_row_turns_that_row_plain_and_no_other(place: int) -> None:
    model = table()
    target, head = model
    state = head.state_after(head.pairs_of(FAULTY.prompt))
    expected = play_beside(table(), None, 0)[0]
    head.table[state] = np.nan
    head._table = mx.array(head.table, target.dtype)
    texts, row, told = play_beside(model, FAULTY, place)
    assert row is not None
    assert (told[0].fault, told[0].broken, told[0].drafted) == (HEAD_NON_FINITE, "", 0)
    assert [landing.fault for landing in told[1:]] == [""] * (ROUNDS - 1)
    assert (row.plain, row.depth, row.pending, row.degraded) == (True, 0, None, [HEAD_NON_FINITE])
    assert len(row.tokens) == len(FAULTY.prompt) + ROUNDS
    assert texts == expected


@pytest.mark.parametrize("spec", [replace(FAULTY, depth=0), replace(FAULTY, plain=True)], ids=["d0", "plain"])
def test_a_row_that_drafts_nothing_is_not_told_off_for_what_the_head_says_of_it(spec: Spec) -> None:
    """The head runs over all rows; what it makes of one that asked for nothing counts for nothing."""
    target, head = table()
    head.table[head.state_after(head.pairs_of(FAULTY.prompt))] = np.nan
    head.table[head.state_after([])] = np.nan
    head._table = mx.array(head.table, target.dtype)
    _, row, told = play_beside((target, head), spec, 1, turns=2)
    assert row is not None
    assert [landing.fault for landing in told] == ["", ""]
    assert row.degraded == []


def test_a_row_whose_second_draft_came_from_no_numbers_is_not_told_off_where_it_asked_for_one() -> None:
    target, head = table()
    crowd = Crowd(target, head)
    crowd.join(replace(HEALTHY[0], depth=1))
    crowd.join(replace(HEALTHY[1], depth=3))
    pairs = head.pairs_of(HEALTHY[0].prompt)
    first = head.ids[int(np.argmax(head.table[head.state_after(pairs)]))]
    head.table[head.state_after(head.extended(pairs, first))] = np.nan
    head._table = mx.array(head.table, target.dtype)
    landings = crowd.play()
    assert [(landing.fault, landing.drafted) for landing in landings] == [("", 1), ("", 3)]


@pytest.mark.parametrize("logprobs", [None, 2])
def test_a_law_that_reaches_beyond_the_candidates_is_judged_again_for_its_row_alone(
    monkeypatch: pytest.MonkeyPatch, logprobs: int | None
) -> None:
    monkeypatch.setattr(sampling, "CANDIDATES", 6)
    monkeypatch.setattr(sampling, "FEW_CANDIDATES", 6)
    flat = Spec((9, 4, 4), SamplerSettings(3.0, top_p=0.97, seed=9, acceptance=BLOCK), 2)
    sharp = Spec((5, 6), SamplerSettings(0.3, top_p=0.4, seed=4, acceptance=TOKEN), 3)
    judged: list[tuple[int, bool]] = []
    real = rounds.judge

    def judge(rows: Any, *others: Any, full: bool) -> Any:
        judged.append((len(rows), full))
        return real(rows, *others, full=full)

    monkeypatch.setattr(rounds, "judge", judge)
    crowd = Crowd(*table())
    rows = [crowd.join(spec) for spec in (sharp, flat, sharp)]
    for row in rows:
        row.logprobs = logprobs
    landings = crowd.play()
    assert [landing.redone for landing in landings] == [False, True, False]
    assert judged == [(3, False), (1, True)]
    assert [row.flat for row in rows] == [False, True, False]
    assert landings[0] == landings[2]
    alone = Crowd(*table())
    alone.join(flat).logprobs = logprobs
    assert alone.play()[0].tokens == landings[1].tokens
    for landing in landings:
        assert [told.token for told in landing.logprobs] == (landing.tokens if logprobs else [])


class Raising:
    """A head that raises wherever it is given a row whose tokens are of some kind."""

    def __init__(self, head: TableHead, wrong: Callable[[list[int]], bool]) -> None:
        self._head, self._wrong = head, wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    def absorb(self, tokens: Array, taps: Any, cache: Any) -> Array:
        if any(self._wrong(row) for row in tokens.tolist()):
            raise RuntimeError("out of order")
        return self._head.absorb(tokens, taps, cache)


@each_place
def test_a_head_that_raises_for_one_row_is_found_out_and_the_others_draft_again(place: int) -> None:
    target, head = table()
    crowd = Crowd(target, head)
    specs = list(HEALTHY)
    specs.insert(place, FAULTY)
    rows = [crowd.join(spec) for spec in specs]
    last = FAULTY.prompt[-1]
    crowd.batch.head = Raising(head, lambda tokens: tokens[0] == last)  # type: ignore[union-attr, assignment]
    landings = crowd.play()
    assert [landing.fault for landing in landings] == [
        HEAD_FAILED if b == place else "" for b in range(len(rows))
    ]
    assert all(landing.drafted == 0 for landing in landings)
    assert_settled(replace_head(crowd, head))
    landings = crowd.play()
    drafted = [0 if b == place else spec.depth for b, spec in enumerate(specs)]
    assert [landing.drafted for landing in landings] == drafted
    assert rows[place].degraded == [HEAD_FAILED]
    assert_settled(replace_head(crowd, head))


def test_a_head_that_fails_only_with_all_rows_at_once_turns_all_that_drafted_plain() -> None:
    """Nobody in particular is to blame, and it must not fail for ever."""
    target, head = table()
    crowd = Crowd(target, head)
    rows = [crowd.join(spec) for spec in [*HEALTHY[:2], replace(HEALTHY[3], depth=0)]]

    class Crowded(Raising):
        def absorb(self, tokens: Array, taps: Any, cache: Any) -> Array:
            if tokens.shape[0] > 1:
                raise RuntimeError("too many")
            return self._head.absorb(tokens, taps, cache)

    crowd.batch.head = Crowded(head, lambda _: False)  # type: ignore[union-attr, assignment]
    landings = crowd.play()
    assert [landing.fault for landing in landings] == [HEAD_FAILED, HEAD_FAILED, ""]
    assert [row.plain for row in rows] == [True, True, False]
    assert_settled(replace_head(crowd, head))


def replace_head(crowd: Crowd, head: TableHead) -> Any:
    """The batch with a head that works, for looking at what its caches hold."""
    assert crowd.batch is not None
    return replace(crowd.batch, head=head)
