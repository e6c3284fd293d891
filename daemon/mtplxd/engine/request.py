"""What one answer is asked to be: plain values, fixed before decoding begins. Checking a user's words is `rpc`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the daemon makes requests before model libraries are imported
    from mtplxd.families.load import LoadedModel


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """The sampler in force. `top_k` 0, `top_p` 1 and `min_p` 0 are off; temperature 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        """Greedy follows from the temperature alone."""
        return self.temperature == 0.0

    @property
    def rule(self) -> str:
        """The acceptance rule this sampler decodes with."""
        return "greedy" if self.greedy else "token"


@dataclass(slots=True)
class Request:
    """One prompt to decode. `deadline` is on the `time.monotonic` clock; `depth` 0 decodes plainly."""

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
