"""How a head is to be fed, from what was counted of every way. Pure: counts in, a choice and its reasons out.

A setting that family or source declares is changed only on clear evidence; what is not clear is kept, and said. Each
switch is judged by itself, beside the others as chosen: what only came along with another one's gain stays as declared.
Several that change together must be worth it together, too: two that make up for each other are no evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from mtplxd.families.heads.row import HeadSettings
from mtplxd.tune.decision import COLLAPSED

MIN_PROMPTS = 4
MIN_ROUNDS = 48
CLEAR_LEAD = 0.25
"""Tokens a round by which one way must be ahead of another for it to be more than chance."""

HOPELESS = 1.0
"""Tokens a round behind the best way, along the same texts, from which more of them would tell nothing new."""
HOPELESS_PROMPTS = 8

Status = Literal["confirmed", "changed", "inconclusive", "calibration_failed"]


@dataclass(frozen=True)
class Sample:
    """What one way of feeding came to: by prompt, how many drafts each round had accepted."""

    rounds: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """Rounds in all."""
        return sum(map(len, self.rounds))

    @property
    def tokens_per_round(self) -> float:
        return 1 + sum(map(sum, self.rounds)) / max(self.count, 1)

    @property
    def enough(self) -> bool:
        """Whether there is enough of it to change a declared setting for."""
        return len(self.rounds) >= MIN_PROMPTS and self.count >= MIN_ROUNDS

    def acceptance(self, depth: int) -> list[float]:
        """The share of rounds that accepted each position."""
        every = [accepted for prompt in self.rounds for accepted in prompt]
        return [sum(accepted > place for accepted in every) / max(len(every), 1) for place in range(depth)]

    def first(self, prompts: int) -> Sample:
        """Of the first prompts alone."""
        return Sample(self.rounds[:prompts])


@dataclass(frozen=True)
class Switch:
    """One switch: what was declared, what is used now, how many tokens a round that is ahead of the other value, and
    whether that is clear."""

    name: str
    declared: str
    chosen: str
    lead: float
    verdict: Literal["confirmed", "changed", "inconclusive"]


@dataclass(frozen=True)
class Choice:
    """The settings to feed a head with, and why."""

    status: Status
    settings: HeadSettings
    switches: tuple[Switch, ...]


Table = Mapping[HeadSettings, Sample]


def is_hopeless(sample: Sample, best: Sample | None) -> bool:
    """Whether a way need not be tried along the texts that are left."""
    return (
        best is not None
        and sample.enough
        and len(sample.rounds) >= HOPELESS_PROMPTS
        and _lead(best, sample) > HOPELESS
    )


def choose(declared: HeadSettings, table: Table) -> Choice:
    """`table` has every combination of the switches that were tried, the declared one among them."""
    best = max(table, key=lambda way: table[way].tokens_per_round)
    if table[best].acceptance(1)[0] <= COLLAPSED:
        return Choice("calibration_failed", declared, ())
    found = _as_declared_where_unclear(best, declared, table)
    chosen = found if found == declared or _is_clear(found, declared, table) else declared
    beside = dict(_flips(chosen, table))
    together = [name for name in beside if getattr(found, name) != getattr(chosen, name)]
    beside |= dict.fromkeys(together, found)  # each by itself loses, all of them may be as good
    switches = tuple(_judge(name, other, chosen, declared, table) for name, other in beside.items())
    verdicts = {switch.verdict for switch in switches}
    status: Status = (
        "changed" if "changed" in verdicts else "inconclusive" if "inconclusive" in verdicts else "confirmed"
    )
    return Choice(status, chosen, switches)


def _as_declared_where_unclear(best: HeadSettings, declared: HeadSettings, table: Table) -> HeadSettings:
    """The best way with every switch put back whose change is not worth it beside the others', the least one first."""
    chosen = best
    while True:
        back = [
            other
            for name, other in _flips(chosen, table)
            if getattr(other, name) == getattr(declared, name) and not _is_clear(chosen, other, table)
        ]
        if not back:
            return chosen
        chosen = max(back, key=lambda other: table[other].tokens_per_round)


def _judge(
    name: str, other: HeadSettings, chosen: HeadSettings, declared: HeadSettings, table: Table
) -> Switch:
    clear = _is_clear(chosen, other, table)
    changed = getattr(chosen, name) != getattr(declared, name)
    return Switch(
        name,
        getattr(declared, name),
        getattr(chosen, name),
        round(_lead(table[chosen], table[other]), 3),
        "inconclusive" if not clear else "changed" if changed else "confirmed",
    )


def _flips(way: HeadSettings, table: Table) -> Iterator[tuple[str, HeadSettings]]:
    """The ways that were tried and differ in one switch, with its name."""
    for other in table:
        differing = [name for name, value in asdict(way).items() if getattr(other, name) != value]
        if len(differing) == 1:
            yield differing[0], other


def _is_clear(way: HeadSettings, other: HeadSettings, table: Table) -> bool:
    one, two = table[way], table[other]
    return one.enough and two.enough and _lead(one, two) >= CLEAR_LEAD


def _lead(one: Sample, other: Sample) -> float:
    """Tokens a round, along the texts that both were tried on."""
    shared = min(len(one.rounds), len(other.rounds))
    return one.first(shared).tokens_per_round - other.first(shared).tokens_per_round
