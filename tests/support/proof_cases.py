"""What the proof of the law is made on: mixes of settings, draft lengths, and the distance to plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, DraftSampler, SamplerSettings
from support.enumeration import Enumeration, Problem
from support.reference_laws import Text, reference_law, shaped_logits, text_law, total_variation
from support.table_matcher import TableLanguage
from support.table_model import TableTarget

HORIZON = 6
PROMPT = (1, 3, 2)
REDUCED = (0, 2, 3)
BOUND_FLOAT64 = 1e-9
BOUND_FLOAT32 = 1e-5

ALL_FILTERS = SamplerSettings(temperature=1.1, top_k=4, top_p=0.88, min_p=0.2)
FILTERS = {
    "temperature": SamplerSettings(temperature=1.5),
    "top_k": SamplerSettings(temperature=1.3, top_k=3),
    "top_p": SamplerSettings(temperature=0.7, top_p=0.71),
    "min_p": SamplerSettings(temperature=0.9, min_p=0.21),
    "top_k and top_p": SamplerSettings(temperature=1.6, top_k=3, top_p=0.83),
    "top_p and min_p": SamplerSettings(temperature=1.1, top_p=0.88, min_p=0.13),
    "all": ALL_FILTERS,
}
SHAPES: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.7},
    "presence and frequency": {"presence_penalty": 0.75, "frequency_penalty": -0.5},
    "bias": {"logit_bias": ((1, 1.25), (3, -2.0))},
    "mask": {},
    "draft sampler": {"draft": DraftSampler(temperature=0.6, top_k=2)},
    "greedy drafts": {"draft": DraftSampler(temperature=0.0)},
}
EVERYTHING: dict[str, Any] = {
    "repetition_penalty": 1.4,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.375,
    "logit_bias": ((0, -0.75), (2, 1.0)),
    "draft": DraftSampler(temperature=0.8, top_k=3),
}
GRAMMAR = TableLanguage(
    moves=(
        {0: 1, 1: 2, 3: 4},
        {1: 3, 2: 0, 3: 2, 4: 1},
        {0: 4, 2: 2, 4: 0},
        {0: 0, 1: 3, 2: 1, 3: 4, 4: 2},
        {1: 0, 2: 3},
    ),
    final=frozenset(),
)
"""Two to all five ids may follow; no text of it ends."""
MIXES = {
    **{name: (sampler, None) for name, sampler in FILTERS.items()},
    **{
        f"{name} and all filters": (replace(ALL_FILTERS, **shape), GRAMMAR if name == "mask" else None)
        for name, shape in SHAPES.items()
    },
    "everything": (SamplerSettings(temperature=1.8, top_k=3, top_p=0.85, min_p=0.25, **EVERYTHING), GRAMMAR),
}
"""Sampler and grammar by name: what is proved for six tokens."""

PARTS: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 3},
    "top_p": {"top_p": 0.83},
    "min_p": {"min_p": 0.17},
    "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.375},
    "bias": {"logit_bias": ((0, -0.75), (2, 1.0))},
    "mask": {},
}
COMBINATIONS = {
    " + ".join(["temperature", *names]): (
        SamplerSettings(
            temperature=1.3, **{key: value for name in names for key, value in PARTS[name].items()}
        ),
        GRAMMAR if "mask" in names else None,
    )
    for count in range(len(PARTS) + 1)
    for names in combinations(PARTS, count)
}
"""All 64 of temperature with any of the parts: what is proved for fewer tokens."""


def plain_law(model: TableTarget, problem: Problem, horizon: int) -> np.ndarray:
    """The law of the next tokens by plain decoding, from the reference alone."""

    def law_after(text: Text) -> np.ndarray:
        logits = model.logits_after(problem.prompt + text)
        shaped = shaped_logits(logits, problem.sampler, problem.prompt, text, problem.allowed(text))
        return reference_law(shaped, problem.sampler)

    return text_law(law_after, horizon, model.vocab_size)


def distances(model: Enumeration, problems: Sequence[Problem]) -> list[float]:
    """Total variation of each problem's law from plain decoding's."""
    laws = model.text_laws(problems)
    return [
        total_variation(law, plain_law(model.target, problem, model.horizon))
        for law, problem in zip(laws, problems, strict=True)
    ]


def under_rules(problem: Problem, rules: Sequence[str] = (TOKEN, BLOCK)) -> list[Problem]:
    """The same problem under each rule; their rows share batches."""
    return [replace(problem, sampler=replace(problem.sampler, acceptance=rule)) for rule in rules]


def fixed(depth: int) -> Callable[[Text], int]:
    return lambda _: depth


def varying(target: TableTarget, depth: int) -> Callable[[Text], int]:
    """Draft lengths 0…depth that depend on the whole text so far."""
    return lambda text: (target.state_after(text) // 7) % (depth + 1)


_MIX, _ = MIXES["everything"]
COMPANIES: dict[str, Callable[[TableTarget], list[Problem]]] = {
    "token and block": lambda _: [
        Problem((2, 4), replace(ALL_FILTERS, acceptance=BLOCK), fixed(2)),
        Problem((0, 1, 2, 3, 4, 0, 1), replace(FILTERS["top_k and top_p"], acceptance=TOKEN), fixed(1)),
    ],
    "everything beside a greedy row": lambda _: [
        Problem((1, 3, 2), replace(_MIX, acceptance=TOKEN), fixed(3), GRAMMAR),
        Problem((4, 0, 3, 3, 1), SamplerSettings(temperature=0.0), fixed(1)),
    ],
    "block beside a plain row": lambda target: [
        Problem((3, 0, 3), replace(_MIX, acceptance=BLOCK), varying(target, 2)),
        Problem((2, 2, 1, 4, 0, 2, 3, 1), FILTERS["top_k"], fixed(0), plain=True),
    ],
    "token, block and a race": lambda target: [
        Problem((4, 2), replace(ALL_FILTERS, acceptance=TOKEN), varying(target, 3)),
        Problem((0, 1, 2, 3, 4, 0, 1), replace(_MIX, acceptance=BLOCK), fixed(2), GRAMMAR),
        Problem((3,), replace(FILTERS["top_p"], acceptance=COUPLED), fixed(3)),
    ],
    "three that differ in all": lambda target: [
        Problem((1, 3, 2, 2, 0, 4), replace(_MIX, acceptance=TOKEN), fixed(1)),
        Problem((2,), replace(FILTERS["top_p and min_p"], acceptance=BLOCK), varying(target, 3)),
        Problem((4, 4, 1), FILTERS["top_k and top_p"], fixed(0), GRAMMAR, plain=True),
    ],
    "a race, a greedy row and everything": lambda target: [
        Problem((0, 3), replace(_MIX, temperature=0.9, acceptance=COUPLED), fixed(1)),
        Problem((2, 1, 0, 2), replace(SamplerSettings(temperature=0.0), **EVERYTHING), fixed(3), GRAMMAR),
        Problem((4, 1, 3, 0, 0), replace(_MIX, acceptance=BLOCK), varying(target, 2)),
    ],
}
"""Two or three rows by name, unlike in rule, sampler, depth and length."""

_SHARP = SamplerSettings(temperature=1.2, top_k=2)
PAIRS = {
    "token and block": (
        Problem((2, 4), replace(_SHARP, acceptance=TOKEN), fixed(1)),
        Problem((0, 1, 2, 3, 4), replace(_SHARP, temperature=0.8, acceptance=BLOCK), fixed(2)),
    ),
    "depth 0 and a grammar": (
        Problem((1, 3, 2, 0, 0, 4), replace(_SHARP, temperature=0.7), fixed(0)),
        Problem((3,), replace(FILTERS["top_k"], acceptance=TOKEN), fixed(2), GRAMMAR),
    ),
}
"""Two rows by name, few enough outcomes each to walk all of both."""


def enumerable(problem: Problem) -> bool:
    """Whether a row's own law can be enumerated; races are a function of noise, and beside others for their sake."""
    return problem.sampler.rule != COUPLED
