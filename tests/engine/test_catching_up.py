"""Rows whose head waited for long draft again beside rows that always did: nobody pays for pairs that are not theirs,
and nobody waits for all of them at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtplxd.engine.catching_up import APART_COST, APART_MOST, CHUNK, SHARED_LEAST, SHARED_MOST, share_width
from mtplxd.engine.request import BLOCK, SamplerSettings
from mtplxd.engine.round import HEAD_FAILED, discard, take_back
from mtplxd.families.protocols import Head, Target
from mtplxd.platform.mlx import Array
from support.churn import Crowd, Spec
from support.ragged import assert_settled
from support.table_model import TableHead, TableTarget, read_slots

GREEDY = SamplerSettings(0.0)
SAMPLED = SamplerSettings(0.9, seed=3, acceptance=BLOCK)
Model = tuple[Target, Head]


class Recording:
    """A head that notes the shapes of what it absorbs."""

    def __init__(self, head: Any, fail_at: int | None = None) -> None:
        self._head, self._fail_at = head, fail_at
        self.shapes: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    def absorb(self, tokens: Array, taps: Any, cache: Any) -> Array:
        self.shapes.append(tokens.shape)
        if self._fail_at is not None and len(self.shapes) - 1 == self._fail_at:
            raise RuntimeError("out of order")
        return self._head.absorb(tokens, taps, cache)


def open_waiting(
    model: Model, waiting: list[int], sampler: SamplerSettings = GREEDY, depth: int = 3
) -> Crowd:
    """Rows with so many pairs their head has yet to absorb, behind a few it has."""
    crowd = Crowd(*model)
    for b, count in enumerate(waiting):
        prompt = tuple((7 * place + 11 * b) % 250 + 3 for place in range(count + 4 + b))
        crowd.join(Spec(prompt, replace(sampler, seed=b), depth, pending=count))
    return crowd


def record(crowd: Crowd, fail_at: int | None = None) -> Recording:
    assert crowd.batch is not None
    noted = Recording(crowd.batch.head, fail_at)
    crowd.batch.head = noted  # type: ignore[assignment]
    return noted


def positions(crowd: Crowd) -> list[Any]:
    assert crowd.batch is not None
    pending = [row.pending and list(row.pending.tokens) for row in crowd.rows]
    return [pending, *(list(layer.lengths) for layer in (*crowd.batch.cache, *crowd.batch.head_cache))]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_long_wait_is_absorbed_apart_and_all_rows_draft_at_once(model: Model, place: int) -> None:
    waiting = [2, 1, 3]
    waiting[place] = 300
    crowd = open_waiting(model, waiting)
    noted = record(crowd)
    landings = crowd.play()
    assert [landing.drafted for landing in landings] == [3, 3, 3]
    *apart, together = noted.shapes
    assert together[0] == 3
    assert together[1] <= 3
    assert all(rows == 1 and width <= CHUNK for rows, width in apart)
    assert sum(width for _, width in apart) == 300 - together[1]
    assert_settled(crowd.batch)  # type: ignore[arg-type]


def test_a_row_that_catches_up_drafts_what_it_drafts_alone(model: Model) -> None:
    waiting = [2, 200, 1, 90]
    crowd = open_waiting(model, waiting)
    drafts = crowd.launch().drafts.ids.tolist()
    for b in range(len(waiting)):
        alone = Crowd(*model)
        prompt = tuple(crowd.rows[b].tokens)
        alone.join(Spec(prompt, GREEDY, 3, pending=waiting[b]))
        assert alone.launch().drafts.ids.tolist()[0] == drafts[b]


def test_waits_that_are_alike_are_absorbed_in_one_forward(model: Model) -> None:
    crowd = open_waiting(model, [40, 41, 39])
    noted = record(crowd)
    crowd.play()
    assert noted.shapes == [(3, 41)]
    assert_settled(crowd.batch)  # type: ignore[arg-type]


def test_one_row_alone_absorbs_all_it_has_in_one_forward(model: Model) -> None:
    crowd = open_waiting(model, [400])
    noted = record(crowd)
    crowd.play()
    assert noted.shapes == [(1, 400)]
    assert_settled(crowd.batch)  # type: ignore[arg-type]


def test_many_long_waits_take_turns_and_everyone_drafts_in_the_end(model: Model) -> None:
    waits = [300, 2, 310, 1, 320]
    crowd = open_waiting(model, waits)
    noted = record(crowd)
    drafted = []
    for _ in range(4):
        noted.shapes.clear()
        drafted.append([landing.drafted for landing in crowd.play()])
        assert sum(width for rows, width in noted.shapes if rows == 1) <= APART_MOST
        assert_settled(crowd.batch)  # type: ignore[arg-type]
    assert drafted[0] == [3, 3, 0, 3, 0]
    assert drafted[1] == [3, 3, 3, 3, 0]
    assert drafted[2] == [3, 3, 3, 3, 3]


def test_long_waits_of_rows_that_do_not_draft_cost_nothing_and_stay(model: Model) -> None:
    crowd = open_waiting(model, [200, 2, 1, 2])
    noted = record(crowd)
    shapes = set()
    for turn in range(3):
        noted.shapes.clear()
        crowd.play([0, 3, 2, 0])
        shapes |= set(noted.shapes)
        waiting = [len(row.pending.tokens) if row.pending else 0 for row in crowd.rows]
        assert waiting[0] == 201 + turn
        assert waiting[3] <= 5
        assert_settled(crowd.batch)  # type: ignore[arg-type]
    assert {rows for rows, _ in shapes} == {4}
    assert max(width for _, width in shapes) <= 5


def test_a_plain_row_never_absorbs_drafts_or_keeps_pairs(model: Model) -> None:
    crowd = open_waiting(model, [2, 5])
    plain = crowd.join(Spec((5, 6, 7, 8), SAMPLED, 3, plain=True))
    for turn in range(5):
        landings = crowd.play([3, 0, 3] if turn % 2 else [0, 2, 3])
        assert landings[2].drafted == 0
        assert plain.pending is None
        assert [layer.lengths[2] for layer in crowd.batch.head_cache] == [0]  # type: ignore[union-attr]
        assert_settled(crowd.batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("lengths", [[3, 3, 3, 3], [0, 3, 1, 0], [3, 0, 0, 2]])
def test_a_discarded_round_is_as_if_it_had_never_begun_though_rows_stay_caught_up(
    model: Model, lengths: list[int]
) -> None:
    crowd = open_waiting(model, [2, 150, 1, 260])
    flight = crowd.launch(lengths)
    drafts = flight.drafts.ids.tolist()
    discard(crowd.batch, flight)  # type: ignore[arg-type]
    assert_settled(crowd.batch)  # type: ignore[arg-type]
    before = positions(crowd)
    noted = record(crowd)
    again = crowd.launch(lengths)
    assert {rows for rows, _ in noted.shapes} == {4}
    assert again.drafts.ids.tolist() == drafts
    discard(crowd.batch, again)  # type: ignore[arg-type]
    assert positions(crowd) == before
    again = crowd.launch(lengths)
    crowd.finish(again)
    assert_settled(crowd.batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("lengths", [[0, 0, 0], [3, 1, 2]])
def test_whatever_was_launched_can_be_taken_back_from_what_the_rows_say(
    model: Model, lengths: list[int]
) -> None:
    crowd = open_waiting(model, [2, 150, 1])
    crowd.join(Spec((5, 6, 7, 8), SAMPLED, 3, plain=True))
    crowd.play([1, 0, 2, 0])
    flight = crowd.launch([*lengths, 0])
    if not any(lengths):
        crowd.launch([0] * 4, flight.tokens)
    take_back(crowd.batch)  # type: ignore[arg-type]
    assert_settled(crowd.batch)  # type: ignore[arg-type]
    assert [landing.drafted for landing in crowd.play()] == [3, 3, 3, 0]
    assert_settled(crowd.batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [0, 1])
def test_a_head_that_raises_while_a_row_catches_up_costs_that_row_alone_its_head(step: int) -> None:
    target = TableTarget(vocab=300)
    model = target, TableHead(target)
    crowd = open_waiting(model, [2, 250, 1])
    whole = crowd.batch.head  # type: ignore[union-attr]
    record(crowd, fail_at=step)
    landings = crowd.play()
    assert [landing.fault for landing in landings] == ["", HEAD_FAILED, ""]
    assert [landing.drafted for landing in landings] == [3, 0, 3]
    crowd.batch.head = whole  # type: ignore[union-attr]
    assert_settled(crowd.batch)  # type: ignore[arg-type]
    assert [row.plain for row in crowd.rows] == [False, True, False]
    assert [landing.drafted for landing in crowd.play()] == [3, 0, 3]


def test_the_cache_of_a_row_put_back_holds_its_own_pairs_and_its_neighbours_theirs() -> None:
    target = TableTarget(vocab=300)
    head = TableHead(target)
    crowd = open_waiting((target, head), [1, 222, 1, 1, 99])
    crowd.play()
    for b, row in enumerate(crowd.rows):
        held = crowd.batch.head_cache[0].lengths[b]  # type: ignore[union-attr]
        assert read_slots(crowd.batch.head_cache[0], b) == head.pairs_of(row.tokens)[:held]  # type: ignore[union-attr]


waits = st.lists(st.integers(0, 512), min_size=1, max_size=16)


@given(waiting=waits)
def test_a_shared_forward_is_never_wider_than_a_wait_nor_larger_than_its_bound(waiting: list[int]) -> None:
    width, turn = share_width(waiting, len(waiting))
    longest = max(waiting)
    assert 0 <= width <= longest
    assert (width == 0) == (longest == 0)
    assert width <= SHARED_LEAST or width * len(waiting) <= SHARED_MOST
    assert all(waiting[b] > width for b in turn)


@given(waiting=waits)
def test_what_is_absorbed_apart_is_bounded_and_never_nothing_where_something_waits(
    waiting: list[int],
) -> None:
    width, turn = share_width(waiting, len(waiting))
    long = [b for b, count in enumerate(waiting) if count > width]
    rest = [waiting[b] - width for b in turn]
    assert bool(rest) == bool(long)
    assert sum(rest) <= APART_MOST or len(rest) == 1
    if sum(waiting[b] - width for b in long) <= APART_MOST:
        assert list(turn) == long


@given(waiting=waits)
def test_the_width_is_the_cheapest_of_those_that_are_allowed(waiting: list[int]) -> None:
    def cost(width: int) -> int:
        return len(waiting) * width + sum(count - width + APART_COST for count in waiting if count > width)

    width, _ = share_width(waiting, len(waiting))
    most = max(SHARED_LEAST, SHARED_MOST // len(waiting))
    assert all(cost(width) <= cost(min(count, most)) for count in waiting if count)


def test_counts_are_what_bounds_say_for_rows_of_a_common_kind() -> None:
    assert share_width([2, 500, 3, 1], 4) == (3, [1])
    assert share_width([1] * 8, 8) == (1, [])
    assert share_width([9, 8, 9, 7], 4) == (9, [])
    assert share_width([0, 0, 0], 3) == (0, ())
    assert share_width([512], 1) == (512, [])
    assert np.all(np.array(share_width([512] * 16, 16)[0]) == 32)
