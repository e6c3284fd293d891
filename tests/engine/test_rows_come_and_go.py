"""Rows of one batch join, leave and differ in everything: one body forward a round, and each row's own text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, SamplerSettings
from mtplxd.engine.round import discard, land, launch
from mtplxd.engine.uniforms import UniformSupply
from mtplxd.families.load import LoadedModel
from mtplxd.families.protocols import Head, Target
from mtplxd.platform.mlx import mx
from support.churn import Crowd, Spec, solo_text
from support.ragged import ForcedSource, assert_settled, open_ragged, play_round
from support.shaped import IDS, LANGUAGE, SHAPED
from support.table_model import TableHead, TableTarget

SPECS = [
    Spec((5, 6), SamplerSettings(0.0), 3),
    Spec((7, 1, 2, 3, 9, 10, 11), SamplerSettings(0.8, top_p=0.9, seed=1, acceptance=TOKEN), 2),
    Spec((3,), replace(SHAPED, seed=2, acceptance=BLOCK), 4, LANGUAGE.start),
    Spec((5, 5, 5), replace(SHAPED, seed=3, acceptance=COUPLED), 3, pending=2),
    Spec((1, 2, 3, 4), SamplerSettings(1.0, seed=4, acceptance=BLOCK), 1, pending=3),
    Spec((8, 9), replace(SHAPED, seed=5, acceptance=TOKEN), 0),
    Spec((8, 9), SamplerSettings(1.1, seed=6, acceptance=COUPLED), 1, LANGUAGE.start),
    Spec((2, 4, 2, 4, 2, 4), replace(SHAPED, seed=7, acceptance=BLOCK), 3, plain=True),
]
RAGGED = [
    [7, 9],
    [5, 9, 11, 200, 31, 4, 8],
    [12, 3, 77, 150, 42, 9, 9, 10, 11, 12, 13, 14, 15, 16],
    [8, 8, 8],
]
Model = tuple[Target, Head]


class Counting:
    """A body that counts its forwards."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.forwards = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def run(self, tokens: Any, cache: Any) -> Any:
        self.forwards += 1
        return self._target.run(tokens, cache)


def table() -> tuple[TableTarget, TableHead]:
    target = TableTarget(IDS, seed=1, spread=2.0)
    return target, TableHead(target, range(1, IDS), seed=2, spread=1.5)


def test_one_body_forward_a_round_with_accepted_none_one_and_all_and_rows_that_come_and_go(
    model: Model,
) -> None:
    target, head = Counting(model[0]), model[1]
    batch: Any = open_ragged(target, head, RAGGED[:3], SamplerSettings(), pending=2)  # type: ignore[arg-type]
    newcomer = open_ragged(*model, RAGGED[3:], SamplerSettings())
    target.forwards = 0
    play_round(batch, [4, 1, 2], [0, 1, 2])
    assert [row.counts.accepted for row in batch.rows] == [[0] * 4, [1], [1, 1]]
    batch.join(newcomer)
    assert batch.cache[0].lengths == [len(row.tokens) - 1 for row in batch.rows]
    play_round(batch, [2, 3, 0, 4], [1, 0, 0, 4])
    left = batch.leave(0)
    assert left not in batch.rows
    play_round(batch, [1, 3, 2], [0, 3, 1])
    assert target.forwards == 3
    for _ in range(3):
        play_round(batch, [0] * len(batch.rows), [0] * len(batch.rows))
    assert target.forwards == 6
    assert_settled(batch)


ACTIONS = ("round", "round", "round", "plain round", "join", "leave", "discard", "ahead", "leave in flight")


def churn(model: Model, data: Any, turns: int) -> None:
    """Random rounds of rows that come and go; the invariant of a round holds after each."""
    target, head = model
    prompt = st.lists(st.integers(3, 250), min_size=1, max_size=20)
    batch = open_ragged(target, head, [data.draw(prompt), data.draw(prompt)], SamplerSettings())
    for turn in range(turns):
        count = len(batch.rows)
        deep = st.lists(st.integers(0, 4), min_size=count, max_size=count)
        action = data.draw(st.sampled_from(ACTIONS))
        if action == "join" and count < 6:
            other = open_ragged(
                target, head, [data.draw(prompt)], SamplerSettings(), data.draw(st.integers(1, 4))
            )
            if data.draw(st.booleans()):
                make_plain(other)
            batch.join(other)
        elif action == "leave" and count > 1:
            batch.leave(data.draw(st.integers(0, count - 1)))
        elif action == "round":
            play_round(batch, data.draw(deep), data.draw(deep), seed=turn)
        elif action == "plain round":
            play_round(batch, [0] * count, [0] * count, seed=turn)
        elif action == "discard":
            before = positions(batch)
            flight = forced_launch(batch, data.draw(deep), turn)
            land(batch, flight)
            discard(batch, flight)
            assert positions(batch) == before
        elif action in ("ahead", "leave in flight"):
            flight = forced_launch(batch, [0] * count, turn)
            ahead = forced_launch(batch, [0] * count, turn + 1, flight.judgement.token)
            Crowd(target, head, batch).finish(flight, ahead=1)
            if action != "ahead" and count > 1:
                place = data.draw(st.integers(0, count - 1))
                batch.leave(place)
                ahead.leave(place)
            Crowd(target, head, batch).finish(ahead)
        assert_settled(batch)


def forced_launch(batch: Any, lengths: list[int], seed: int, last: Any = None) -> Any:
    return launch(batch, ForcedSource([seed % 4] * len(lengths)), lengths, last)


def positions(batch: Any) -> list[Any]:
    pending = [list(row.pending.tokens) if row.pending else None for row in batch.rows]
    return [pending, *(list(layer.lengths) for layer in (*batch.cache, *batch.head_cache))]


def make_plain(batch: Any) -> None:
    for row in batch.rows:
        row.plain, row.pending = True, None
    for layer in batch.head_cache:
        layer.roll_back([0] * len(batch.rows))


@settings(max_examples=26, deadline=None)
@given(data=st.data())
def test_after_every_round_of_any_churn_both_caches_hold_each_rows_text(data: st.DataObject) -> None:
    target = TableTarget(vocab=300)
    churn((target, TableHead(target, range(0, 300, 2))), data, 12)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_after_every_round_of_any_churn_a_real_body_and_head_hold_each_rows_text(
    tiny_model: LoadedModel, data: st.DataObject
) -> None:
    assert tiny_model.head is not None
    churn((tiny_model.target, tiny_model.head), data, 8)


@settings(max_examples=16, deadline=None)
@given(
    order=st.permutations(range(len(SPECS))),
    arrivals=st.lists(st.integers(0, 3), min_size=len(SPECS), max_size=len(SPECS)),
    count=st.integers(6, 14),
)
def test_each_row_says_what_it_says_alone_whoever_joins_and_leaves(
    order: list[int], arrivals: list[int], count: int
) -> None:
    """Rows join some rounds after one another and leave once they have said enough."""
    model = table()
    crowd = Crowd(*model)
    waiting = [(SPECS[place], arrivals[place]) for place in order]
    present: dict[int, Spec] = {}
    said: list[tuple[Spec, list[int]]] = []
    while waiting or present:
        while waiting and (not present or waiting[0][1] <= len(said)):
            spec, _ = waiting.pop(0)
            present[id(crowd.join(spec))] = spec
        waiting = [(spec, left - 1) for spec, left in waiting]
        crowd.play()
        for place in reversed(range(len(crowd.rows))):
            row = crowd.rows[place]
            spec = present[id(row)]
            if len(row.tokens) >= len(spec.prompt) + count:
                crowd.leave(place)
                said.append((present.pop(id(row)), row.tokens[len(spec.prompt) :][:count]))
    assert len(said) == len(SPECS)
    for spec, text in said:
        assert text == solo_text(*model, spec, count)


@pytest.mark.parametrize("leaver", [None, 0, 1, 2])
def test_rows_at_depth_0_go_on_from_tokens_the_host_has_not_seen_also_when_one_leaves(
    leaver: int | None,
) -> None:
    model = table()
    specs = [replace(SPECS[place], depth=0) for place in (0, 1, 5)]
    crowd = Crowd(*model)
    rows = [crowd.join(spec) for spec in specs]
    flight = crowd.launch()
    for turn in range(9):
        ahead = crowd.launch(last=flight.tokens)
        crowd.finish(flight, ahead=1)
        if turn == 4 and leaver is not None:
            crowd.leave(leaver, ahead)
        flight = ahead
    crowd.finish(flight)
    assert_settled(crowd.batch)  # type: ignore[arg-type]
    for place, (row, spec) in enumerate(zip(rows, specs, strict=True)):
        made = row.tokens[len(spec.prompt) :]
        assert len(made) == (5 if place == leaver else 10)
        assert made == solo_text(*model, spec, len(made))


def test_a_row_alone_in_a_large_batch_of_leavers_goes_on_as_ever() -> None:
    model = table()
    crowd = Crowd(*model)
    [first, *_] = [crowd.join(spec) for spec in SPECS]
    crowd.play()
    while len(crowd.rows) > 1:
        crowd.leave(next(place for place, row in enumerate(crowd.rows) if row is not first))
        crowd.play()
        assert_settled(crowd.batch)  # type: ignore[arg-type]
    count = len(first.tokens) - 2
    assert first.tokens[2:] == solo_text(*model, SPECS[0], count)


def test_the_numbers_of_rows_in_a_batch_change_no_rows_uniforms() -> None:
    """A batch of many draws as deep as its deepest; what a row is given does not move."""
    model = table()
    alone, beside = Crowd(*model), Crowd(*model)
    alone.join(SPECS[1])
    beside.join(SPECS[1])
    for spec in SPECS[2:5]:
        beside.join(spec)
    for _ in range(4):
        one, many = alone.launch([2]), beside.launch([2, 4, 4, 1])
        given = [flight.source.accept(mx.zeros(flight.drafts.ids.shape)) for flight in (one, many)]
        assert given[0].tolist()[0] == given[1].tolist()[0][:2]
        alone.finish(one)
        beside.finish(many)
        assert alone.rows[0].tokens == beside.rows[0].tokens


def test_rows_that_race_cost_their_neighbours_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a vocabulary of a hundred thousand they take milliseconds a position and row."""
    made: list[int] = []
    real = UniformSupply._generator

    def generator(self: UniformSupply, stream: int, index: int) -> Any:
        made.append(stream)
        return real(self, stream, index)

    monkeypatch.setattr(UniformSupply, "_generator", generator)
    crowd = Crowd(*table())
    for place in (0, 1, 3, 4):
        crowd.join(SPECS[place])
    crowd.play()
    depth = max(SPECS[place].depth for place in (0, 1, 3, 4))
    assert made.count(1) == depth + 1
