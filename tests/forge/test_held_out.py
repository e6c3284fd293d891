"""Offline acceptance against brute force: the overlap, the sampler's filter, and rounds walked along text."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from mtplxd.forge.held_out import compare, filtered, walk_rounds


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def test_the_filter_keeps_the_smallest_set_that_holds_top_p(rng: np.random.Generator) -> None:
    logits = rng.normal(size=(5, 40)).astype(np.float32) * 2
    vocabulary = np.sort(rng.choice(500, 40, replace=False)).astype(np.int32)
    ids, probs = filtered(logits, vocabulary, 0.8)
    for row in range(5):
        dense = np.zeros(500)
        dense[vocabulary] = softmax(logits[row] / 0.6)
        order = np.argsort(-dense)
        size = int(np.searchsorted(np.cumsum(dense[order]), 0.8)) + 1
        kept = np.zeros(500)
        kept[order[:size]] = dense[order[:size]] / dense[order[:size]].sum()
        found = np.zeros(500)
        found[ids[row]] = probs[row]
        np.testing.assert_allclose(found, kept, atol=1e-6)


def test_overlap_and_the_chance_of_a_recorded_token(rng: np.random.Generator) -> None:
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    p_ids, q_ids = np.array([4, 9, 2, 7, 1, 30]), np.array([9, 8, 4, 2, 55, 1], np.int32)
    dense_p, dense_q = np.zeros(60), np.zeros(60)
    dense_p[p_ids], dense_q[q_ids] = p, q
    for token in (4, 9, 7, 50):
        shared, chance = compare(
            p_ids, p.astype(np.float32), q_ids, q.astype(np.float32), np.array(token, np.int32)
        )
        assert shared == pytest.approx(np.minimum(dense_p, dense_q).sum(), abs=1e-6)
        wanted = min(dense_p[token], dense_q[token]) / dense_p[token] if dense_p[token] else 0
        assert chance == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_walked_rounds_are_the_mean_over_every_way_the_drafts_can_fall(
    depth: int, rng: np.random.Generator
) -> None:
    length = 7
    overlap, take = rng.uniform(size=(1, length, depth)), rng.uniform(size=(1, length, depth))
    said = np.ones((1, length), bool)
    accepted, rounds = np.zeros(depth), 0.0
    pairs = [i for i in range(length) if i + depth + 1 < length]
    for falls in itertools.product((0, 1), repeat=len(pairs) * depth):
        fell = dict(zip(itertools.product(pairs, range(depth)), falls, strict=True))
        weight = np.prod([take[0, i, j] if up else 1 - take[0, i, j] for (i, j), up in fell.items()])
        place = 0
        while place in pairs:
            rounds += weight
            run = next((j for j in range(depth) if not fell[place, j]), depth)
            for j in range(min(run + 1, depth)):
                accepted[j] += weight * overlap[0, place, j]
            place += run + 1
    found = walk_rounds(overlap, take, said, depth)
    np.testing.assert_allclose(found, accepted / rounds, atol=1e-9)


def test_rounds_begin_where_the_target_speaks(rng: np.random.Generator) -> None:
    overlap, take = rng.uniform(size=(1, 12, 1)), rng.uniform(size=(1, 12, 1))
    said = np.zeros((1, 12), bool)
    said[:, 6:] = True
    changed = overlap.copy()
    changed[:, :4] = 0.5
    assert walk_rounds(overlap, take, said, 1) == walk_rounds(changed, take, said, 1)
