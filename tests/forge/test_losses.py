"""The loss against its equations, in float64 numpy and on the full vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
from mtplxd.forge.batches import draft_index_of
from mtplxd.forge.losses import aim_at, head_loss
from mtplxd.platform.mlx import mx

N, V, D, K = 7, 50, 30, 50
TOP_P = 0.9


@pytest.fixture
def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    target = rng.normal(size=(N, V)) * 2
    head = rng.normal(size=(N, D)).astype(np.float32)
    draft_vocab = np.sort(rng.choice(V, D, replace=False)).astype(np.int32)
    weights = rng.uniform(0.2, 1.0, N).astype(np.float32)
    return target, head, draft_vocab, weights


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def reference(
    target: np.ndarray, head: np.ndarray, draft_vocab: np.ndarray, weights: np.ndarray, share: float
) -> tuple[float, float]:
    p, q = softmax(target / 0.6), np.zeros((N, V))
    q[:, draft_vocab] = softmax(head.astype(np.float64) / 0.6)
    inside = np.zeros(V, bool)
    inside[draft_vocab] = True
    kept = np.zeros_like(p)
    for row, probs in enumerate(p):
        total = 0.0
        for token in np.argsort(-probs, kind="stable"):
            if total >= TOP_P:
                break
            kept[row, token], total = probs[token], total + probs[token]
    kept /= kept.sum(-1, keepdims=True)
    entropy = -np.where(inside, p * np.log(np.where(q > 0, q, 1)), 0).sum(-1)
    accepted = np.minimum(kept, q).sum(-1)
    mean = lambda values: float((weights * values).sum() / weights.sum())  # noqa: E731
    return (1 - share) * mean(entropy) + share * (1 - mean(accepted)), mean(accepted)


def aim(target: np.ndarray, draft_vocab: np.ndarray, weights: np.ndarray) -> object:
    order = np.argsort(-target, axis=-1)[:, :K]
    sums = np.stack([np.log(np.exp(target).sum(-1)), np.log(np.exp(target / 0.6).sum(-1))], -1).astype(
        np.float32
    )
    logprobs = np.take_along_axis(target, order, -1) - sums[:, :1]
    return aim_at(order, logprobs, sums, draft_index_of(draft_vocab, V), weights, TOP_P)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_loss_and_acceptance_follow_their_equations(drawn: tuple[np.ndarray, ...], share: float) -> None:
    target, head, draft_vocab, weights = drawn
    loss, acceptance = head_loss(mx.array(head), aim(target, draft_vocab, weights), share)  # type: ignore[arg-type]
    wanted_loss, wanted_acceptance = reference(target, head, draft_vocab, weights, share)
    assert float(loss) == pytest.approx(wanted_loss, rel=1e-4)
    assert float(acceptance) == pytest.approx(wanted_acceptance, rel=1e-4)


def test_the_gradient_is_that_of_the_equations(drawn: tuple[np.ndarray, ...]) -> None:
    target, head, draft_vocab, weights = drawn
    share, step = 0.5, 1e-5
    made = aim(target, draft_vocab, weights)
    found = np.array(mx.grad(lambda logits: head_loss(logits, made, share)[0])(mx.array(head)))  # type: ignore[arg-type]
    for row, column in ((0, 0), (3, 11), (6, 29)):
        moved = [head.astype(np.float64).copy() for _ in range(2)]
        moved[0][row, column] += step
        moved[1][row, column] -= step
        up, down = (reference(target, logits, draft_vocab, weights, share)[0] for logits in moved)
        assert found[row, column] == pytest.approx((up - down) / (2 * step), abs=1e-5)


def test_a_head_that_says_what_the_target_says_is_accepted_as_often_as_the_nucleus_allows(
    drawn: tuple[np.ndarray, ...],
) -> None:
    target, _, _, weights = drawn
    everything = np.arange(V, dtype=np.int32)
    _, acceptance = head_loss(mx.array(target.astype(np.float32)), aim(target, everything, weights), 1.0)  # type: ignore[arg-type]
    p = softmax(target / 0.6)
    ordered = -np.sort(-p, axis=-1)
    mass = (ordered * (np.cumsum(ordered, -1) - ordered < TOP_P)).sum(-1)
    assert float(acceptance) == pytest.approx(float((weights * mass).sum() / weights.sum()), rel=1e-4)
