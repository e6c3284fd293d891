"""A language and a sampler that use every part of the filter chain, over a vocabulary of 24 ids."""

from __future__ import annotations

from mtplxd.engine.request import DraftSampler, SamplerSettings
from support.table_matcher import TableLanguage

IDS = 24
LANGUAGE = TableLanguage(
    moves=tuple({token: (token + state) % 3 for token in range(state, IDS, 2)} for state in range(3)),
    final=frozenset(),
    size=IDS,
)
SHAPED = SamplerSettings(
    temperature=0.9,
    top_k=8,
    repetition_penalty=1.3,
    frequency_penalty=0.25,
    logit_bias=((4, 1.5),),
    draft=DraftSampler(temperature=0.7),
)
