"""What the proof of the law is made on: mixes of filters, draft lengths, and the distance to plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from mtplxd.engine.request import SamplerSettings
from support.enumeration import Enumeration, Problem
from support.reference_laws import Text, reference_law, text_law, total_variation
from support.table_model import TableTarget

HORIZON = 6
PROMPT = (1, 3, 2)
REDUCED = (0, 2, 3)
BOUND_FLOAT64 = 1e-9
BOUND_FLOAT32 = 1e-5

ALL_FILTERS = SamplerSettings(temperature=1.1, top_k=4, top_p=0.88, min_p=0.2)
MIXES = {
    "top_k": SamplerSettings(temperature=1.3, top_k=3),
    "top_p": SamplerSettings(temperature=0.7, top_p=0.71),
    "min_p": SamplerSettings(temperature=0.9, min_p=0.21),
    "top_k and top_p": SamplerSettings(temperature=1.6, top_k=3, top_p=0.83),
    "top_p and min_p": SamplerSettings(temperature=1.1, top_p=0.88, min_p=0.13),
}


def plain_law(target: TableTarget, prompt: Text, sampler: SamplerSettings, horizon: int) -> np.ndarray:
    return text_law(
        lambda text: reference_law(target.logits_after(prompt + text), sampler), horizon, target.vocab_size
    )


def distances(model: Enumeration, problems: Sequence[Problem]) -> list[float]:
    """Total variation of each problem's law from plain decoding's."""
    laws = model.text_laws(problems)
    return [
        total_variation(law, plain_law(model.target, problem.prompt, problem.sampler, model.horizon))
        for law, problem in zip(laws, problems, strict=True)
    ]


def fixed(depth: int) -> Callable[[Text], int]:
    return lambda _: depth


def varying(target: TableTarget, depth: int) -> Callable[[Text], int]:
    """Draft lengths 0…depth that depend on the whole text so far."""
    return lambda text: (target.state_after(text) // 7) % (depth + 1)
