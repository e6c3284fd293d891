"""What decides over a training: more tokens a round on held-out text, and more agreement than a constant guess has."""

from __future__ import annotations

import numpy as np
import pytest
from mtplxd.forge.held_out import Acceptance
from mtplxd.forge.losses import nucleus, soften
from mtplxd.forge.shards import FORCED, GENERATED, Shard
from mtplxd.forge.training_verdict import (
    LEAST_GAIN,
    USELESS,
    guess_acceptance,
    judge_training,
    refuse_start,
    tokens_a_round,
)


def found(first: float, *rounds: float) -> Acceptance:
    return Acceptance((first,), ((first,), rounds or (first,)), 100)


def test_tokens_a_round_are_those_of_the_deepest_depth() -> None:
    assert tokens_a_round(found(0.5, 0.4, 0.3)) == pytest.approx(1.7)


def test_a_gain_passes_and_none_does_not() -> None:
    before = found(0.5, 0.5, 0.2)
    assert not judge_training(before, found(0.5, 0.5, 0.2 + LEAST_GAIN + 1e-6), 0.1)
    assert "before" in judge_training(before, found(0.5, 0.5, 0.2 + LEAST_GAIN - 1e-6), 0.1)
    assert "before" in judge_training(before, found(0.4, 0.4, 0.2), 0.1)
    assert "before" in judge_training(before, before, 0.1)


@pytest.mark.parametrize(("first", "guess"), [(0.2, 0.2), (0.19, 0.2), (USELESS, 0.0), (0.0, 0.0)])
def test_no_better_than_a_guess_is_no_head(first: float, guess: float) -> None:
    assert "not a head of this body" in refuse_start(found(first), guess)
    assert "constant guess" in judge_training(found(0.0), found(first), guess)


def test_better_than_a_guess_is_a_beginning() -> None:
    assert not refuse_start(found(0.21), 0.2)
    assert not judge_training(found(0.1), found(0.21), 0.2)


def test_a_constant_guess_is_what_a_head_without_eyes_would_be_accepted(rng: np.random.Generator) -> None:
    rows, length, vocab, kept = 3, 12, 40, 8
    logits = rng.normal(size=(rows, length, vocab)).astype(np.float32) * 2
    ids = np.argsort(-logits, axis=-1)[..., :kept]
    sums = np.stack([np.log(np.exp(logits / heat).sum(-1)) for heat in (1.0, 0.6)], axis=-1).astype(
        np.float32
    )
    logprobs = np.take_along_axis(logits, ids, axis=-1) - sums[..., :1]
    origin = rng.choice([FORCED, GENERATED], (rows, length)).astype(np.uint8)
    shard = Shard(
        tokens=rng.integers(0, vocab, (rows, length)).astype(np.uint16),
        origin=origin,
        taps=np.zeros((rows, length, 1, 2), np.float16),
        top_ids=ids.astype(np.uint16),
        top_logprobs=logprobs,
        logsumexp=sums,
    )
    mass = rng.uniform(size=vocab) * 50
    target = nucleus(soften(logprobs, sums), 0.95)
    shares = []
    for row in range(rows):
        for place in range(length - 1):
            if (
                place >= 1 and origin[row, place + 1] == GENERATED
            ):  # a draft needs a pair of two tokens before it
                dense = np.zeros(vocab)
                dense[ids[row, place]] = target[row, place]
                shares.append(np.minimum(dense, mass / mass.sum()).sum())
    assert guess_acceptance(mass, [shard], 0.95) == pytest.approx(float(np.mean(shares)), abs=1e-5)


def test_text_without_a_word_of_the_targets_has_no_guess() -> None:
    shape = (1, 5)
    shard = Shard(
        tokens=np.zeros(shape, np.uint16),
        origin=np.zeros(shape, np.uint8),
        taps=np.zeros((*shape, 1, 2), np.float16),
        top_ids=np.zeros((*shape, 2), np.uint16),
        top_logprobs=np.zeros((*shape, 2), np.float16),
        logsumexp=np.ones((*shape, 2), np.float32),
    )
    assert guess_acceptance(np.ones(4), [shard], 0.95) == 0.0
