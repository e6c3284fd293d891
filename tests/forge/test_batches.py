"""Batches: every counted place is paired with what the target said after the tokens the head was given.

It is weighed by who wrote the token it drafts.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from mtplxd.forge.batches import ORIGIN_WEIGHTS, RowSource
from mtplxd.forge.shards import ASKED, FIELDS, FORCED, GENERATED, Shard, read_shard, write_shard

ROWS, LENGTH, VOCAB = 5, 14, 1000


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Every recorded top id says its row and place; the likeliest token has nearly all of the probability."""
    place = np.arange(ROWS)[:, None] * 100 + np.arange(LENGTH)
    logprobs = np.tile(np.array([-0.001, -8.0], np.float16), (ROWS, LENGTH, 1))
    sums = np.zeros((ROWS, LENGTH, 2), np.float32)
    shard = Shard(
        tokens=place.astype(np.uint16),
        origin=rng.choice([FORCED, GENERATED, ASKED], (ROWS, LENGTH)).astype(np.uint8),
        taps=np.tile(place[..., None, None], (1, 1, 2, 4)).astype(np.float16),
        top_ids=np.stack([place, np.full_like(place, 999)], axis=-1).astype(np.uint16),
        top_logprobs=logprobs,
        logsumexp=sums,
    )
    write_shard(tmp_path, 0, shard)
    return tmp_path


def source(folder: Path, seed: int = 0) -> RowSource:
    return RowSource(folder, [0], np.arange(VOCAB, dtype=np.int32), 0.95, seed)


@pytest.mark.parametrize("depths", [1, 3])
def test_a_place_aims_at_what_the_target_said_after_its_tokens(folder: Path, depths: int) -> None:
    found = source(folder).gather([3, 1], depths)
    pairs = LENGTH - depths
    assert found.taps.shape == (2, pairs, 2, 4)
    for depth, (places, aim) in enumerate(zip(found.places, found.aims, strict=True), start=1):
        rows, pair = np.divmod(places, pairs)
        np.testing.assert_array_equal(found.taps[rows, pair, 0, 0], found.tokens[rows, pair])
        np.testing.assert_array_equal(aim.places[:, 0], found.tokens[rows, pair] + depth)


def test_places_of_some_chains_aim_at_what_their_own_tokens_lead_to(folder: Path) -> None:
    depths, share = 3, 4
    pairs, begins = LENGTH - depths, set()
    for step in range(40):
        found = source(folder).batch(step, 2, depths, share)
        begin, end = found.chains.start, found.chains.stop
        assert (end - begin, begin >= 0, end <= pairs) == (-(-pairs // share), True, True)
        begins.add(begin)
        for depth, (places, aim) in enumerate(zip(found.places, found.aims, strict=True), start=1):
            rows, pair = np.divmod(places, pairs if depth == 1 else end - begin)
            pair = pair + (0 if depth == 1 else begin)
            np.testing.assert_array_equal(aim.places[:, 0], found.tokens[rows, pair] + depth)
    assert begins == set(range(pairs - -(-pairs // share) + 1))


def test_weights_are_of_the_origin_of_the_token_drafted(folder: Path) -> None:
    origin = np.load(folder / "shard-00000" / "origin.npy")
    found = source(folder).gather([0, 2], 2)
    pairs = LENGTH - 2
    for depth, (places, aim) in enumerate(zip(found.places, found.aims, strict=True), start=1):
        rows, pair = np.divmod(places, pairs)
        written = origin[np.array([0, 2])[rows], pair + depth + 1]
        np.testing.assert_allclose(aim.weights, [ORIGIN_WEIGHTS[int(value)] for value in written])
        assert FORCED not in written


def test_an_epoch_visits_every_row_once_and_a_step_is_the_same_again(folder: Path) -> None:
    visited = [row for step in range(5) for row in source(folder).batch(step, 1, 1).tokens[:, 0] // 100]
    assert sorted(visited) == list(range(ROWS))
    first, again = source(folder).batch(7, 2, 1), source(folder).batch(7, 2, 1)
    np.testing.assert_array_equal(first.tokens, again.tokens)
    others = [source(folder, seed).batch(0, 5, 1).tokens[:, 0].tolist() for seed in range(4)]
    assert len({tuple(order) for order in others}) > 1


def test_a_short_row_among_longer_ones_counts_as_it_does_alone(folder: Path) -> None:
    whole = read_shard(folder, 0)
    cut = Shard(**{name: np.asarray(getattr(whole, name))[:, :9] for name in FIELDS})
    write_shard(folder, 1, cut)
    both = RowSource(folder, [0, 1], np.arange(VOCAB, dtype=np.int32), 0.95, seed=0)
    short, long = ROWS + 2, 3
    for depths in (1, 3):
        beside, alone = both.gather([long, short], depths), both.gather([short], depths)
        assert beside.tokens.shape == (2, LENGTH)
        pairs = LENGTH - depths
        for depth in range(depths):
            rows, pair = np.divmod(beside.places[depth], pairs)
            _, expected = np.divmod(alone.places[depth], 9 - depths)
            reached = pair[rows == 1]
            # a row alone leaves its last places to no depth that others could not use them for
            np.testing.assert_array_equal(reached[: len(expected)], expected)
            assert (reached + depth + 2 <= 8 + 1).all()
            np.testing.assert_array_equal(
                beside.aims[depth].weights[rows == 1][: len(expected)], alone.aims[depth].weights
            )


def test_there_may_be_more_shards_than_a_process_may_have_files_open(folder: Path) -> None:
    again = read_shard(folder, 0)
    for index in range(1, 20):
        write_shard(folder, index, again)
    before = len(os.listdir("/dev/fd"))
    many = RowSource(folder, list(range(20)), np.arange(VOCAB, dtype=np.int32), 0.95, seed=0)
    drawn = many.batch(0, 20, 1)
    assert many.rows == 20 * ROWS
    assert drawn.tokens.shape[0] == 20
    assert len(os.listdir("/dev/fd")) <= before
