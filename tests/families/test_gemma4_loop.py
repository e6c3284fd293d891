"""A Gemma 4 pair decodes what its target alone would, whatever its drafter says and however long the text is."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from mtplxd.engine.batch import Batch
from mtplxd.engine.fixed_shape import fix_shape
from mtplxd.engine.round import commit, land, launch
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.gemma_pair import WINDOW, write_pair
from support.ragged import counted
from support.steering import assert_contents, assert_lengths, open_steered, play
from support.stock import greedy_text, load_stock

SIZES = ("small", "large", "experts")
PROMPT = [5, 9, 11, 200, 31, 4, 8, 77, 3, 12, 90, 41]
LONG = [int(token) for token in np.random.default_rng(8).integers(3, 300, 600)]
TOKENS = 40
DEPTH = 3


@cache
def opened(size: str, root: Path, *, long: bool = False) -> tuple[LoadedModel, list[int]]:
    """A loaded pair, and a prompt with its greedy text by the stock class."""
    folder = root / size
    if not folder.exists():
        write_pair(folder, size, seed=3)
    prompt = LONG if long else PROMPT
    text = greedy_text(load_stock(folder), prompt, TOKENS + DEPTH)
    return load_model(read_pack(folder)), [*prompt, *text]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


def fresh_drafts(batch: Batch, depth: int) -> list[int]:
    """What the drafter says behind the committed text when body and head begin anew."""
    assert batch.head is not None
    [row], head = batch.rows, batch.head
    body = batch.target.make_cache(1)
    _, taps = batch.target.run(mx.array([row.tokens[:-1]]), body)
    lent = head.make_cache(1, body)
    state = head.absorb(mx.array([row.tokens[-1:]]), tuple(tap[:, -1:] for tap in taps), lent)
    drafts = [int(mx.argmax(head.logits(state)).item())]
    while len(drafts) < depth:
        state = head.extend(mx.array([drafts[-1:]]), state, lent)
        drafts.append(int(mx.argmax(head.logits(state)).item()))
    return drafts


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("size", SIZES)
def test_text_and_caches_are_right_whatever_is_accepted(size: str, depth: int, root: Path) -> None:
    model, text = opened(size, root)
    batch = open_steered(model, PROMPT, depth)
    assert_lengths(batch)
    plan, seen = [*range(depth + 1), *reversed(range(depth + 1))], set()
    while len(batch.rows[0].tokens) < len(PROMPT) + TOKENS:
        passing = plan[batch.rows[0].counts.rounds % len(plan)]
        assert play(batch, depth, text, passing) == passing
        seen.add(passing)
        assert_lengths(batch)
        assert_contents(batch)
    assert seen == set(range(depth + 1))
    assert len(batch.rows[0].tokens) > 4 * WINDOW
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("size", SIZES)
def test_every_round_drafts_what_a_fresh_start_behind_the_text_would(
    size: str, depth: int, root: Path
) -> None:
    model, text = opened(size, root)
    batch = open_steered(model, PROMPT, depth)
    [row] = batch.rows
    while len(row.tokens) < len(PROMPT) + TOKENS:
        expected = fresh_drafts(batch, depth)
        flight = launch(batch, counted([0], [row.round]), [depth])
        assert flight.drafts.ids.tolist() == [expected]
        landings = land(batch, flight)
        commit(batch, flight, landings, [len(landing.tokens) for landing in landings])
    assert row.tokens == text[: len(row.tokens)]


def test_drafts_of_its_own_are_accepted_and_rejected(root: Path) -> None:
    model, text = opened("small", root)
    batch = open_steered(model, PROMPT, DEPTH)
    accepted = []
    while len(batch.rows[0].tokens) < len(PROMPT) + TOKENS:
        accepted.append(play(batch, DEPTH))
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]
    assert 0 < sum(accepted) < DEPTH * len(accepted)


@pytest.mark.parametrize("size", SIZES)
def test_a_prompt_in_chunks_is_the_prompt_at_once(size: str, root: Path) -> None:
    model, text = opened(size, root)
    for chunk in (1, 3, WINDOW + 1):
        batch = open_steered(model, PROMPT, DEPTH, chunk)
        assert_lengths(batch)
        assert_contents(batch)
        while len(batch.rows[0].tokens) < len(PROMPT) + 12:
            play(batch, DEPTH)
        assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]


@pytest.mark.parametrize("size", SIZES)
def test_far_behind_the_window_the_text_is_still_the_targets(size: str, root: Path) -> None:
    model, text = opened(size, root, long=True)
    batch = open_steered(model, LONG, DEPTH)
    while len(batch.rows[0].tokens) < len(LONG) + TOKENS:
        play(batch, DEPTH, text, batch.rows[0].counts.rounds % (DEPTH + 1))
        assert_lengths(batch)
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]
    assert_contents(batch)


def test_pairs_that_wait_at_depth_0_cost_it_nothing(root: Path) -> None:
    model, text = opened("large", root)
    batch = open_steered(model, PROMPT, 0)
    for _ in range(WINDOW + 3):
        play(batch, 0)
    expected = fresh_drafts(batch, DEPTH)
    flight = launch(batch, counted([0], [batch.rows[0].round]), [DEPTH])
    assert flight.drafts.ids.tolist() == [expected]
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]


@pytest.mark.parametrize("size", SIZES)
def test_rounds_of_one_shape_give_one_text_at_every_depth(size: str, root: Path) -> None:
    model, text = opened(size, root)
    for depth in range(DEPTH + 1):
        batch = open_steered(model, PROMPT, depth)
        fix_shape(batch, model.fixed_width)
        while len(batch.rows[0].tokens) < len(PROMPT) + TOKENS:
            play(batch, depth)
            assert_lengths(batch)
        assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]
