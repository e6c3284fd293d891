"""The sampler's law and the law of a text, written from DESIGN's equations; shares nothing with the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
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


def shaped_logits(
    logits: np.ndarray,
    sampler: SamplerSettings,
    prompt: Text,
    generated: Text,
    allowed: Collection[int] | None = None,
    ids: Sequence[int] | None = None,
) -> np.ndarray:
    """Logits as the settings shape them, float64: mask → bias → repetition → presence and frequency, id by id.

    `ids` are what the logits are of where a draft vocabulary is reduced; a mask that leaves none of them is no mask.
    """
    ids = range(len(logits)) if ids is None else ids
    bias = dict(sampler.logit_bias)
    masked = allowed is not None and any(token in allowed for token in ids)
    found = []
    for logit, token in zip(logits.tolist(), ids, strict=True):
        value, said = logit + bias.get(token, 0.0), generated.count(token)
        if said or token in prompt:
            factor = sampler.repetition_penalty
            value = value / factor if value > 0 else value * factor
        value -= sampler.presence_penalty * (said > 0) + sampler.frequency_penalty * said
        found.append(-np.inf if masked and allowed is not None and token not in allowed else value)
    return np.array(found)


def draft_sampler(sampler: SamplerSettings) -> SamplerSettings:
    """What drafts are drawn with: the draft sampler's own temperature and top-k, where the target is not greedy."""
    own = sampler.draft
    if sampler.temperature == 0.0:
        return sampler
    return replace(
        sampler,
        temperature=sampler.temperature if own.temperature is None else own.temperature,
        top_k=sampler.top_k if own.top_k is None else own.top_k,
    )


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
