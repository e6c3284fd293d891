"""Heads of several layers: each lags by one more, and stays in step whatever a round keeps, drops or takes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mtplxd.engine import row as rows
from mtplxd.engine.batch import Batch
from mtplxd.engine.fixed_shape import fix_shape
from mtplxd.engine.round import HEAD_FAILED, commit, discard, land, launch
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from support.families import write_checkpoint
from support.ragged import counted
from support.steering import assert_contents, assert_lengths, open_steered, play

PROMPT = [(place * 31 + 5) % 290 + 3 for place in range(21)]
LAYERS = 3


@pytest.fixture(scope="module", params=["step3p5", "mimo_v2_flash"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = write_checkpoint(tmp_path_factory.mktemp(request.param) / "pack", request.param)
    return load_model(read_pack(folder))


def head_lengths(batch: Batch) -> list[int]:
    return [layer.lengths[0] for layer in batch.head_cache]


def assert_settled(batch: Batch) -> None:
    assert_lengths(batch)
    assert_contents(batch)


@pytest.mark.parametrize("length", [2, 3, 4, 5, 21])
def test_layers_of_a_short_text_hold_what_there_is(model: LoadedModel, length: int) -> None:
    batch = open_steered(model, PROMPT[:length], 3)
    assert head_lengths(batch) == [max(0, length - 2 - lag) for lag in range(LAYERS)]
    for depth in (3, 1, 2):
        play(batch, depth)
        assert_settled(batch)


@pytest.mark.parametrize("kept", [1, 2, 3, 4])
def test_keeping_a_part_of_a_round_ends_every_layer_with_it(model: LoadedModel, kept: int) -> None:
    plain = open_steered(model, PROMPT, 3)
    for _ in range(4):
        play(plain, 0)
    batch: Any = open_steered(model, PROMPT, 3)
    batch.head.planned = plain.rows[0].tokens[len(PROMPT) : len(PROMPT) + 3]
    flight = launch(batch, counted([0], [0]), [3])
    [landing] = land(batch, flight)
    assert landing.accepted == 3
    commit(batch, flight, [landing], [kept])
    assert_settled(batch)
    play(batch, 3)
    assert_settled(batch)


def test_pairs_wait_through_rounds_at_depth_0_and_every_layer_catches_up(model: LoadedModel) -> None:
    batch = open_steered(model, PROMPT, 3)
    for depth in (3, 0, 0, 0, 1, 0, 2, 3):
        before = head_lengths(batch)
        flight = launch(batch, counted([0], [0]), [depth])
        commit(batch, flight, landed := land(batch, flight), [len(landed[0].tokens)])
        assert_settled(batch)
        assert depth or head_lengths(batch) == before


def test_past_the_limit_every_layer_restarts(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PENDING_LIMIT", 5)
    batch = open_steered(model, PROMPT, 3)
    play(batch, 3)
    for _ in range(9):
        flight = launch(batch, counted([0], [0]), [0])
        commit(batch, flight, land(batch, flight), [1])
    [row] = batch.rows
    assert row.pending is not None
    assert head_lengths(batch) == [0] * LAYERS
    assert row.dropped_pairs == len(row.tokens) - 1 - 5
    for depth in (3, 2, 3):
        play(batch, depth)
        absorbed = len(row.tokens) - 1 - row.dropped_pairs - len(row.pending.tokens)
        assert head_lengths(batch) == [absorbed - lag for lag in range(LAYERS)]


def test_a_discarded_draft_leaves_every_layer_and_what_it_drafts_again(model: LoadedModel) -> None:
    batch = open_steered(model, PROMPT, 3)
    play(batch, 3)
    before = head_lengths(batch)
    flight = launch(batch, counted([0], [0]), [3])
    drafts = flight.drafts.ids.tolist()
    discard(batch, flight)
    assert head_lengths(batch) == before
    again = launch(batch, counted([0], [0]), [3])
    assert again.drafts.ids.tolist() == drafts
    commit(batch, again, landed := land(batch, again), [len(landed[0].tokens)])
    assert_settled(batch)


class Failing:
    """A head that raises at its n-th step of drafting, and otherwise is one."""

    def __init__(self, head: Any, step: int) -> None:
        self._head, self._left = head, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    def logits(self, state: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("out of order")
        return self._head.logits(state)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_head_that_fails_in_any_layer_leaves_them_all_where_they_were(
    model: LoadedModel, step: int
) -> None:
    batch = open_steered(model, PROMPT, 3)
    play(batch, 3)
    before = head_lengths(batch)
    whole: Any = batch.head
    batch.head = Failing(whole, step)
    flight = launch(batch, counted([0], [0]), [3])
    assert head_lengths(batch) == before
    [landing] = land(batch, flight)
    assert (landing.fault, landing.drafted) == (HEAD_FAILED, 0)
    commit(batch, flight, [landing], [1])
    batch.head = whole
    [row] = batch.rows
    assert (row.plain, row.pending, head_lengths(batch)) == (True, None, [0] * LAYERS)
    text = [*row.tokens, landing.tokens[0]]
    play(batch, 0)
    assert {layer.lengths[0] for layer in batch.cache} == {len(text) - 1}
    assert head_lengths(batch) == [0] * LAYERS


def test_forwards_of_one_shape_keep_every_layer_in_step_and_the_text_the_same(model: LoadedModel) -> None:
    texts = []
    for depth in (0, 1, 3):
        batch = open_steered(model, PROMPT, depth)
        fix_shape(batch, 4)
        [row] = batch.rows
        while len(row.tokens) < len(PROMPT) + 24:
            flight = launch(batch, counted([0], [0]), [depth])
            commit(batch, flight, landed := land(batch, flight), [len(landed[0].tokens)])
            if depth:
                assert_lengths(batch)
        texts.append(row.tokens[: len(PROMPT) + 24])
    assert texts[0] == texts[1] == texts[2]
    assert len(np.unique(texts[0])) > 1
