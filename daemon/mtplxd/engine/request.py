"""What one answer is asked to be: plain values, fixed before decoding begins. Checking a user's words is `rpc`'s."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the daemon makes requests before model libraries are imported
    from mtplxd.engine.grammar import Grammar
    from mtplxd.families.load import LoadedModel

GREEDY, TOKEN, BLOCK, COUPLED = "greedy", "token", "block", "coupled"
DEFAULT_RULE = BLOCK
"""Of a sampler that names none: on the same rounds of SmolLM2 it commits 0.5 to 2 % more tokens a round than `token`
(`tests/bench/rules.py`), and takes 0.3 % longer for it.
"""
INTERACTIVE, BACKGROUND = "interactive", "background"
"""Priorities: somebody waits for the text, or nobody does."""
STORE_ON, STORE_WRITE_ONLY, STORE_OFF = "on", "write-only", "off"
STORES = (STORE_ON, STORE_WRITE_ONLY, STORE_OFF)
"""What a request has to do with the disk: it takes from there and keeps there, it only keeps, it does neither."""
DRAFT_CANDIDATES = 128
"""Most ids that a draft's law keeps once it leaves any out: it may leave out what it likes, for it is the one the draft
is drawn from."""
LOGPROBS_LIMIT = 20
"""Most alternatives a token's log-probabilities name."""


@dataclass(frozen=True, slots=True)
class DraftSampler:
    """Where drafts are drawn otherwise than the target would draw: exact, since q is what they were drawn from.

    None follows the target's sampler; `temperature` 0 drafts the likeliest token.
    """

    temperature: float | None = None
    top_k: int | None = None


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """The sampler in force. `top_k` 0, `top_p` 1 and `min_p` 0 are off, as are penalties of 0 and a repetition
    penalty of 1; temperature 0 is greedy.

    `acceptance` is `token`, `block` or `coupled`; `reproducible` runs every forward in one shape.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    acceptance: str = DEFAULT_RULE
    reproducible: bool = False
    draft: DraftSampler = DraftSampler()

    @property
    def greedy(self) -> bool:
        """Greedy follows from the temperature alone."""
        return self.temperature == 0.0

    @property
    def rule(self) -> str:
        """The acceptance rule this sampler decodes with."""
        return GREEDY if self.greedy else self.acceptance

    @property
    def penalised(self) -> bool:
        """Whether what was said before changes what is likely."""
        neutral = self.repetition_penalty == 1.0
        return not (neutral and self.presence_penalty == 0.0 and self.frequency_penalty == 0.0)

    @property
    def drafting(self) -> SamplerSettings:
        """What drafts are drawn with: greedy where the target is."""
        if self.greedy or self.draft == DraftSampler():
            return self
        own = self.draft
        return replace(
            self,
            temperature=self.temperature if own.temperature is None else own.temperature,
            top_k=self.top_k if own.top_k is None else own.top_k,
        )


@dataclass(slots=True)
class Request:
    """One prompt to decode. `deadline` is on the `time.monotonic` clock; `depth` 0 decodes plainly.

    `logprobs` is how many alternatives each token's log-probabilities name, None for no log-probabilities at all;
    `law_logprobs` adds those of the law the token was drawn from. With `auto` the depth of each round is chosen as the
    text goes, `depth` at most.
    """

    id: str
    client: str
    model: LoadedModel
    prompt: list[int]
    sampler: SamplerSettings
    max_tokens: int
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    depth: int = 0
    deadline: float | None = None
    logprobs: int | None = None
    law_logprobs: bool = False
    grammar: Grammar | None = None
    auto: bool = False
    priority: str = INTERACTIVE
    store: str = STORE_ON
