"""What timed answers of clients at the same time come to: totals, waits, gaps and how evenly they were served.

Sums only: who asks and takes the time is `bench_clients`. All times are seconds on one clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Kind = Literal["plain_one", "drafted", "plain"]


@dataclass(frozen=True)
class TimedAnswer:
    """One client's answer: when it was asked, and when each event with tokens came."""

    begin_s: float
    times_s: tuple[float, ...]
    tokens: int
    rounds: int = 0
    cached_tokens: int = 0

    @property
    def ttft_s(self) -> float:
        """From the question to the first token."""
        return self.times_s[0] - self.begin_s

    @property
    def taken_s(self) -> float:
        """From the question to the last token."""
        return self.times_s[-1] - self.begin_s

    @property
    def gap_over_round(self) -> float:
        """The longest pause between two events over the usual one; 0 where there are too few to tell."""
        gaps = [later - earlier for earlier, later in zip(self.times_s, self.times_s[1:], strict=False)]
        usual = median(gaps) if len(gaps) > 1 else 0.0
        return max(gaps) / usual if usual > 0 else 0.0


@dataclass(frozen=True)
class Wave:
    """Answers that were asked for at the same moment. Waves of one width and repeat ran beside each other; a single
    plain answer has the width that it ran beside.
    """

    kind: Kind
    width: int
    repeat: int
    answers: tuple[TimedAnswer, ...]

    @property
    def tok_s(self) -> float:
        """Tokens of all clients a second, from the first token of any to the last of any; the first of each is free,
        as it is for one client alone.
        """
        first = min(answer.times_s[0] for answer in self.answers)
        last = max(answer.times_s[-1] for answer in self.answers)
        made = sum(answer.tokens for answer in self.answers) - len(self.answers)
        return made / (last - first) if last > first else 0.0

    @property
    def slowest_over_fastest(self) -> float:
        """The longest answer over the shortest, in time."""
        taken = [answer.taken_s for answer in self.answers]
        return max(taken) / min(taken)


@dataclass(frozen=True)
class ClientsRow:
    """What so many clients at once came to: medians over repeats, but the worst gap of all and waits of all answers.

    `tok_s_plain_one` is one client's plain decoding in the same run; `tok_s_plain_total` that many clients' plain
    decoding, 0 where it was not measured, as are the ratios to it. `rounds_least` and `rounds_most` are of answers of
    one wave, the one in which they lie furthest apart.
    """

    clients: int
    tok_s_total: float
    tok_s_plain_one: float
    ratio_vs_plain_one: float
    tok_s_plain_total: float
    ratio_vs_plain_total: float
    ttft_p50_s: float
    ttft_p95_s: float
    slowest_over_fastest: float
    gap_over_round: float
    rounds_least: int
    rounds_most: int
    cached_tokens: int
    repeats: int


def rows(waves: Sequence[Wave]) -> tuple[ClientsRow, ...]:
    """A row for each number of clients, in the order they first ran."""
    widths = dict.fromkeys(wave.width for wave in waves)
    return tuple(_row(width, [wave for wave in waves if wave.width == width]) for width in widths)


def _row(clients: int, waves: Sequence[Wave]) -> ClientsRow:
    drafted = [wave for wave in waves if wave.kind == "drafted"]
    alone = {wave.repeat: wave.tok_s for wave in waves if wave.kind == "plain_one"}
    plain = {wave.repeat: wave.tok_s for wave in waves if wave.kind == "plain"}
    answers = [answer for wave in drafted for answer in wave.answers]
    ttfts = sorted(answer.ttft_s for answer in answers)
    rounds = max(
        ([answer.rounds for answer in wave.answers] for wave in drafted), key=lambda r: max(r) - min(r)
    )
    return ClientsRow(
        clients=clients,
        tok_s_total=_middle(wave.tok_s for wave in drafted),
        tok_s_plain_one=_middle(alone.values()),
        ratio_vs_plain_one=_ratio(drafted, alone),
        tok_s_plain_total=_middle(plain.values()),
        ratio_vs_plain_total=_ratio(drafted, plain),
        ttft_p50_s=_share(ttfts, 0.5),
        ttft_p95_s=_share(ttfts, 0.95),
        slowest_over_fastest=_middle(wave.slowest_over_fastest for wave in drafted),
        gap_over_round=max(answer.gap_over_round for answer in answers),
        rounds_least=min(rounds),
        rounds_most=max(rounds),
        cached_tokens=sum(answer.cached_tokens for answer in answers),
        repeats=len(drafted),
    )


def _ratio(waves: Sequence[Wave], others: dict[int, float]) -> float:
    """The median of the ratios of what ran beside each other; 0 where nothing did."""
    return _middle(wave.tok_s / others[wave.repeat] for wave in waves if others.get(wave.repeat, 0.0) > 0)


def _middle(values: Iterable[float]) -> float:
    found = list(values)
    return median(found) if found else 0.0


def _share(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
