"""Rows share rounds on every kind of body and head: what their caches hold is what a fresh run over each text makes.

Windows, recurrences, latent attention, a head of several layers, a head that reads the body's keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.engine.batch import Batch
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import commit, discard, land, launch
from mtplxd.engine.row import Row
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.families import write_checkpoint
from support.ragged import ForcedSource, play_round
from support.steering import assert_alike, contents, leaves

KINDS = ("step3p5", "mimo_v2_flash", "qwen3_next", "nemotron_h", "deepseek_v3", "gemma4", "mimo")
SAMPLER = SamplerSettings(1.0)


@cache
def opened(root: Path, kind: str) -> LoadedModel:
    return load_model(read_pack(write_checkpoint(root / kind, kind)))


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kinds")


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, root: Path) -> LoadedModel:
    found = opened(root, request.param)
    if found.apart:
        pytest.skip(found.apart)
    return found


def open_row(model: LoadedModel, length: int) -> Batch:
    """A row with a prompt of its own behind it."""
    assert model.head is not None
    prompt = [(place * 31 + length * 7) % 290 + 3 for place in range(length)]
    row = Row(list(prompt), SAMPLER, model.depth_max)
    body = model.target.make_cache(1)
    batch = Batch(model.target, model.head, [row], body, model.head.make_cache(1, body))
    prefill = Prefill(batch, prompt)
    while not prefill.finished:
        prefill.step(16)
    return batch


def open_rows(model: LoadedModel, lengths: list[int]) -> Batch:
    first, *others = [open_row(model, length) for length in lengths]
    for other in others:
        first.join(other)
    return first


def lengths_of(layer: Any) -> Iterator[list[int]]:
    for leaf in leaves(layer):
        yield list(leaf.lengths)


def assert_rows(batch: Batch) -> None:
    """The invariant of a round, for each row and layer, and what each cache holds."""
    assert batch.head is not None
    for b, row in enumerate(batch.rows):
        committed, pending = len(row.tokens), len(row.pending.tokens) if row.pending else 0
        assert {found[b] for layer in batch.cache for found in lengths_of(layer)} == {committed - 1}
        held = committed - 1 - pending
        for lag, layer in enumerate(batch.head_cache):
            expected = 0 if row.plain else max(0, held - lag)
            assert {found[b] for found in lengths_of(layer)} == {expected}
        fresh = batch.target.make_cache(1)
        fresh_head = batch.head.make_cache(1, fresh)
        _, taps = batch.target.run(mx.array([row.tokens[:-1]], mx.int32), fresh)
        layers, true = list(batch.cache), list(fresh)
        if held and not row.plain:
            pairs = tuple(tap[:, :held] for tap in taps)
            batch.head.absorb(mx.array([row.tokens[1 : held + 1]], mx.int32), pairs, fresh_head)
            layers, true = [*layers, *batch.head_cache], [*true, *fresh_head]
        for layer, other in zip(layers, true, strict=True):
            assert_alike(contents(layer, b), contents(other), 5e-5)
        if row.pending:
            assert_alike(row.pending.joined(), [tap[:, held:] for tap in taps], 5e-5)


def test_rows_of_unequal_depth_and_acceptance_that_come_and_go(model: LoadedModel) -> None:
    most = min(3, model.depth_max)
    batch = open_rows(model, [5, 21, 12])
    play_round(batch, [most, 1, 0], [0, 1, 0], seed=1)
    assert_rows(batch)
    batch.join(open_row(model, 30))
    play_round(batch, [1, most, most, most], [1, 0, most, 1], seed=2)
    assert_rows(batch)
    batch.leave(0)
    play_round(batch, [most, 0, 1], [most, 0, 0], seed=3)
    play_round(batch, [0, 0, 0], [0, 0, 0], seed=4)
    assert_rows(batch)
    play_round(batch, [most] * 3, [0, most, 1], seed=5)
    assert_rows(batch)


def test_a_row_whose_head_waited_long_drafts_beside_others_what_it_drafts_alone(model: LoadedModel) -> None:
    waiting, alone = open_row(model, 9), open_row(model, 9)
    for batch in (waiting, alone):
        for turn in range(40):
            play_round(batch, [0], [0], seed=turn)
    waiting.join(open_row(model, 14))
    waiting.join(open_row(model, 6))
    assert waiting.rows[0].tokens == alone.rows[0].tokens
    most = min(2, model.depth_max)
    together = launch(waiting, ForcedSource([1, 0, most]), [most] * 3)
    assert together.drafts.lengths.tolist() == [most] * 3
    assert len(waiting.rows[0].pending.tokens) < 41
    own = launch(alone, ForcedSource([1]), [most])
    # The draws are forced alike; what they are drawn from is what must agree.
    laws = [np.array(flight.drafts.laws)[0, 0] for flight in (together, own)]
    assert np.abs(laws[0] - laws[1]).max() < 1e-4
    landings = land(waiting, together)
    assert [(landing.fault, landing.broken) for landing in landings] == [("", "")] * 3
    commit(waiting, together, landings, [len(landing.tokens) for landing in landings])
    assert_rows(waiting)
    play_round(waiting, [most] * 3, [most, 0, 1], seed=9)
    assert_rows(waiting)


def test_a_plain_row_and_one_that_turns_plain_share_rounds_with_one_that_drafts(model: LoadedModel) -> None:
    batch = open_rows(model, [11, 7, 16])
    most = min(2, model.depth_max)
    play_round(batch, [most] * 3, [1, 0, most])
    batch.rows[1].degrade("head_failed")
    for turn in range(3):
        play_round(batch, [most] * 3, [turn % 2, most, 1], seed=turn)
        assert_rows(batch)
    assert batch.rows[1].counts.drafted == most


def test_a_discarded_round_of_rows_can_be_played_again(model: LoadedModel) -> None:
    batch = open_rows(model, [8, 19])
    most = min(2, model.depth_max)
    play_round(batch, [most, most], [most, 0])
    first = launch(batch, ForcedSource([0, 1]), [most, 1])
    tokens = [landing.tokens for landing in land(batch, first)]
    discard(batch, first)
    again = launch(batch, ForcedSource([0, 1]), [most, 1])
    landings = land(batch, again)
    assert [landing.tokens for landing in landings] == tokens
    commit(batch, again, landings, [len(landing.tokens) for landing in landings])
    assert_rows(batch)


def test_a_round_in_which_a_row_caught_up_can_be_discarded_and_played_again(model: LoadedModel) -> None:
    batch = open_row(model, 9)
    for turn in range(150):
        play_round(batch, [0], [0], seed=turn)
    batch.join(open_row(model, 14))
    batch.join(open_row(model, 6))
    most = min(2, model.depth_max)
    first = launch(batch, ForcedSource([1, 0, most]), [most] * 3)
    drafts = first.drafts.ids.tolist()
    discard(batch, first)
    assert_rows(batch)
    again = launch(batch, ForcedSource([1, 0, most]), [most] * 3)
    landings = land(batch, again)
    assert [landing.fault for landing in landings] == ["", "", ""]
    assert again.drafts.ids.tolist() == drafts
    commit(batch, again, landings, [len(landing.tokens) for landing in landings])
    assert_rows(batch)
