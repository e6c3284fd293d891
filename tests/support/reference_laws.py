"""The sampler's law and the law of a text, written in numpy from their equations; shares nothing with the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from mtplxd.engine.request import SamplerSettings

Text = tuple[int, ...]


def reference_law(logits: np.ndarray, sampler: SamplerSettings) -> np.ndarray:
    """p [V] in float64: temperature → top-k → top-p → min-p → renormalise, ties by lower id; one-hot when greedy."""
    logits = np.asarray(logits, np.float64)
    law = np.zeros(len(logits))
    ranked = np.lexsort((np.arange(len(logits)), -logits))
    if sampler.temperature == 0.0:
        law[ranked[0]] = 1.0
        return law
    kept = ranked[: sampler.top_k] if sampler.top_k else ranked
    scaled = logits[kept] / sampler.temperature
    weights = np.exp(scaled - scaled[0])
    weights /= weights.sum()
    before = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
    inside = before < sampler.top_p if sampler.top_p < 1.0 else np.ones(len(kept), bool)
    kept, weights = kept[inside], weights[inside] / weights[inside].sum()
    likely = weights >= sampler.min_p * weights[0]
    law[kept[likely]] = weights[likely] / weights[likely].sum()
    return law


def text_law(law_after: Callable[[Text], np.ndarray], horizon: int, vocab: int) -> np.ndarray:
    """The law of the next `horizon` tokens by plain decoding, [V, …, V]; `law_after` is given the tokens so far."""
    law = np.zeros((vocab,) * horizon)
    reached = {(): 1.0}
    for _ in range(horizon):
        reached = {
            (*text, token): mass * chance
            for text, mass in reached.items()
            for token, chance in enumerate(law_after(text))
            if chance > 0
        }
    for text, mass in reached.items():
        law[text] = mass
    return law


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """Half the sum of absolute differences."""
    return float(0.5 * np.abs(a - b).sum())


def supports(law: np.ndarray) -> list[int]:
    """The ids that can be drawn."""
    return [int(token) for token in np.flatnonzero(law)]


def all_texts(vocab: int, length: int) -> Sequence[Text]:
    """Every text of a length."""
    return list(product(range(vocab), repeat=length))
