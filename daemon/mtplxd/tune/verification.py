"""What a verification asks for and what came of it: plain values, the verdict, and the record a pack keeps of it.

Measures nothing and writes no file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from mtplxd.engine.request import COUPLED, SamplerSettings
from mtplxd.packs.findings import LEAST_P, LEAST_POWER
from mtplxd.tune import identity
from mtplxd.tune.identity import Identity

DEFAULT_SAMPLES, DEFAULT_PROMPTS, DEFAULT_TOKENS = 2000, 4, 64
LEAST_SAMPLES = 160
"""Ten for each cell of the test of laws."""
HARMLESS = frozenset({"head_collapsed"})
"""Degradations that cost speed alone: the head works, it is of no use."""

GREEDY = SamplerSettings(temperature=0.0)
FILTERED, PLAIN = SamplerSettings(temperature=0.6, top_p=0.95), SamplerSettings(temperature=1.0)
SAMPLERS = (FILTERED, PLAIN)
"""What laws are tested with and coupled texts compared with: one law that is cut, one that is whole."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Token ids and seed of each prompt, the depths in rising order, tokens a text, tokens to test laws with."""

    prompts: tuple[tuple[int, ...], ...]
    seeds: tuple[int, ...]
    depths: tuple[int, ...]
    tokens: int
    samples: int

    @property
    def drafting(self) -> tuple[int, ...]:
        """The depths compared with plain decoding."""
        return tuple(depth for depth in self.depths if depth)


@dataclass(frozen=True, slots=True)
class Text:
    """One text to decode."""

    prompt: int
    depth: int
    sampler: SamplerSettings


def plan_law_texts(plan: Plan, reached: int) -> list[Text]:
    """Texts for the test of laws, `samples` tokens or a few more: both samplers, a deep and the shallowest depth.

    The deep one is the deepest of use: no deeper than the drafts that were ever accepted, of which `reached` is the
    deepest. Further drafts shape no text and would cost most of the time. Every text has a seed of
    its own, none of a compared text.
    """
    shallow = plan.drafting[0]
    deep = max((depth for depth in plan.drafting if depth <= reached), default=shallow)
    depths = sorted({shallow, deep}, reverse=True)
    ways = [(depth, sampler) for depth in depths for sampler in SAMPLERS]
    texts: list[Text] = []
    seeds = (seed for seed in count(1 << 32) if seed not in plan.seeds)
    while len(texts) * plan.tokens < plan.samples:
        depth, sampler = ways[len(texts) % len(ways)]
        prompt = len(texts) // len(ways) % len(plan.prompts)
        texts.append(Text(prompt, depth, replace(sampler, seed=next(seeds))))
    return texts


def plan_coupled_texts(plan: Plan, depth: int) -> list[Text]:
    """Texts whose noise is one at every depth: each prompt with both samplers, by the prompt's seed."""
    return [
        Text(prompt, depth, replace(sampler, seed=seed, acceptance=COUPLED))
        for sampler in SAMPLERS
        for prompt, seed in enumerate(plan.seeds)
    ]


@dataclass(frozen=True, slots=True)
class LawTest:
    """What came of it; `power` is the probability of failing a decoder that is wrong as `alternative` says.

    `excluded` tokens are ones that top-p excludes by more than rounding explains.
    """

    test: str
    tokens: int
    statistic: float
    p_value: float
    power: float
    alternative: str
    excluded: int = 0

    @property
    def failures(self) -> list[str]:
        """Why the tokens do not follow their laws, a sentence each; empty where they may."""
        reasons = []
        if self.p_value < LEAST_P:
            reasons.append(
                f"law: tokens do not follow the plain law, p-value {self.p_value:.3g}, below {LEAST_P:g}"
            )
        if self.excluded:
            reasons.append(f"law: {self.excluded} of {self.tokens} tokens are ones that top-p excludes")
        return reasons


@dataclass(frozen=True, slots=True)
class Verification:
    """All findings. `degraded` are the degradations of drafted texts, each once with its depth."""

    depths: tuple[int, ...]
    shape_noise: float
    greedy: Identity
    coupled: Identity
    law: LawTest
    degraded: tuple[tuple[int, str], ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """Why it did not pass, a sentence each."""
        reasons = [
            *identity.failures("greedy", self.greedy),
            *identity.failures("coupled", self.coupled),
            *self.law.failures,
        ]
        reasons += [
            f"depth {depth}: the head failed ({reason})"
            for depth, reason in self.degraded
            if reason not in HARMLESS
        ]
        return tuple(reasons)

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.failures


def record_of(
    found: Verification, fingerprint: dict[str, str], day: str, version: str, machine: dict[str, Any]
) -> dict[str, Any]:
    """The block `verification` of a pack's manifest; `fingerprint` is of body and head as they were verified."""
    law = found.law
    return {
        "date": day,
        "version": version,
        "fingerprint": fingerprint,
        "depths": list(found.depths),
        "shape_noise": found.shape_noise,
        "greedy": _counts(found.greedy),
        "coupled": _counts(found.coupled),
        "law": {
            "test": law.test,
            "tokens": law.tokens,
            "statistic": law.statistic,
            "p_value": law.p_value,
            "power": law.power,
            "alternative": law.alternative,
        },
        "machine": machine,
        "passed": found.passed,
    }


def incompleteness(found: Verification, depth_max: int) -> str:
    """What a verification left open, so that it is no record, and how to close it; empty where it left nothing."""
    if set(range(depth_max + 1)) - set(found.depths):
        return "depths were left out, verify without --depths"
    if found.law.power < LEAST_POWER:
        power = f"{found.law.power:.2f}, at least {LEAST_POWER:g} is needed"
        return f"the test of the law is too weak (power {power}), verify with more --samples"
    return ""


def _counts(found: Identity) -> dict[str, int]:
    return {"tokens": found.tokens, "divergences": found.divergences, "near_ties": found.near_ties}
