"""What a user may ask of a training, checked. What is left open, `sizing` decides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mtplxd.errors import InvalidArgument

Method = Literal["full", "lora"]
"""All weights of a head, or low-rank additions to its linears."""
METHODS = ("auto", "full", "lora")
MOST_DEPTHS = 8


@dataclass(frozen=True)
class TrainPlan:
    """`method` is how a head that is there is trained on; a new one always is as a whole. `quick` takes small sizes for
    what `tokens` (of data) and `steps` (updates) leave open. `prompts` is a file of the user's, `raw` says that its
    texts are gone on with as they are, without a chat template. Losses go to `depths`, `rank` is that of lora.

    Raises InvalidArgument for values there are none of.
    """

    method: str = "auto"
    quick: bool = False
    tokens: int | None = None
    steps: int | None = None
    prompts: Path | None = None
    raw: bool = False
    depths: int = 3
    rank: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        _one_of("method", self.method, METHODS)
        for name, most in (
            ("tokens", 1 << 32),
            ("steps", 1 << 20),
            ("depths", MOST_DEPTHS),
            ("rank", 1 << 10),
        ):
            _between(name, getattr(self, name), most)
        if type(self.seed) is not int or not 0 <= self.seed < 1 << 32:
            raise InvalidArgument(
                "the seed is no whole number from 0 to 2^32", self.seed, "give one", field="seed"
            )

    def document(self) -> dict[str, Any]:
        """As JSON; of a file only its name, since a pack holds no path."""
        return {
            "method": self.method,
            "quick": self.quick,
            "tokens": self.tokens,
            "steps": self.steps,
            "prompts": self.prompts.name if self.prompts else None,
            "raw": self.raw,
            "depths": self.depths,
            "rank": self.rank,
            "seed": self.seed,
        }


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgument(
            f"{name} of a training is not known", value, f"give {' or '.join(allowed)}", field=name
        )


def _between(name: str, value: Any, most: int) -> None:
    if value is not None and (type(value) is not int or not 1 <= value <= most):
        raise InvalidArgument(f"{name} of a training cannot be", value, f"give 1 to {most}", field=name)
