"""Texts of drafted decoding against those of plain decoding: where they part, and whether rounding explains it.

Pure: texts and the numbers behind them come in. A text counts up to where it parts; what follows has another past.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mtplxd.packs.findings import NEAR_TIES


class Parting(NamedTuple):
    """How far plain decoding was from the other token, and whether the noise could have carried it there."""

    margin: float
    near_tie: bool


@dataclass(frozen=True, slots=True)
class Divergence:
    """A text that parts at generated token `position`; `margin` is between the two tokens' scores in plain decoding."""

    prompt: int
    depth: int
    position: int
    margin: float
    near_tie: bool


@dataclass(slots=True)
class Identity:
    """Texts compared so far: tokens in all, and each place where one parted."""

    tokens: int = 0
    found: list[Divergence] = field(default_factory=list)

    @property
    def divergences(self) -> int:
        """Texts that part by more than rounding explains."""
        return sum(not one.near_tie for one in self.found)

    @property
    def near_ties(self) -> int:
        """Texts that part where rounding decides."""
        return sum(one.near_tie for one in self.found)

    def compare(
        self,
        prompt: int,
        depth: int,
        plain: Sequence[int],
        drafted: Sequence[int],
        judge: Callable[[int, int, int], Parting],
    ) -> None:
        """Compares a text with plain decoding's; `judge` takes the place, plain decoding's token and the other."""
        place = first_difference(plain, drafted)
        self.tokens += min(len(plain), len(drafted)) if place is None else place + 1
        if place is not None:
            parting = judge(place, plain[place], drafted[place])
            self.found.append(Divergence(prompt, depth, place, *parting))


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place where two texts differ, None where neither goes on differently."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), None)


def failures(name: str, found: Identity) -> list[str]:
    """Why the texts are not the same, a sentence each; empty where they are."""
    reasons = []
    if found.divergences:
        first = next(one for one in found.found if not one.near_tie)
        reasons.append(
            f"{name}: {found.divergences} texts part from plain decoding by more than rounding explains, the first at "
            f"depth {first.depth}, prompt {first.prompt}, token {first.position} (margin {first.margin:.3g})"
        )
    if found.near_ties > NEAR_TIES * found.tokens:
        reasons.append(f"{name}: {found.near_ties} near-ties in {found.tokens} tokens, more than 1 %")
    return reasons
