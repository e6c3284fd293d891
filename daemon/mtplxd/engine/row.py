"""One sequence in a batch: its committed tokens, the pairs its head has yet to absorb, its counts. Holds no caches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.shaping import Shaper
from mtplxd.families.protocols import Taps
from mtplxd.platform.mlx import mx

if TYPE_CHECKING:
    from mtplxd.engine.grammar import Matcher

PENDING_LIMIT = 512
"""Pairs kept for a head that is not drafting; older ones are dropped and its history restarts there."""


@dataclass(slots=True)
class Pending:
    """Pairs (taps of t_i, t_{i+1}) made with the target's own hidden states; each part is T taps of [1, n, H].

    Parts stay apart until the head absorbs them, so that rounds at depth 0 do not grow a graph nobody evaluates.
    """

    tokens: list[int]
    parts: list[Taps]

    def append(self, tokens: list[int], taps: Taps) -> None:
        """Adds the next pairs."""
        self.tokens += tokens
        self.parts.append(taps)

    def drop_oldest(self, limit: int) -> int:
        """Drops whole parts from the front until at most `limit` pairs are left; gives how many went."""
        before = len(self.tokens)
        while len(self.tokens) > limit and len(self.parts) > 1:
            self.tokens = self.tokens[self.parts.pop(0)[0].shape[1] :]
        return before - len(self.tokens)

    def first(self, count: int) -> tuple[list[int], Taps]:
        """The oldest `count` pairs: tokens, and T arrays of [1, count, H]."""
        return self.tokens[:count], tuple(tap[:, :count] for tap in self.joined())

    def drop_first(self, count: int) -> None:
        """Drops the oldest `count` pairs, fewer than there are."""
        self.tokens, self.parts = self.tokens[count:], [tuple(tap[:, count:] for tap in self.joined())]

    def joined(self) -> Taps:
        """All pairs' taps, T arrays of [1, n, H]."""
        if len(self.parts) == 1:
            return self.parts[0]
        return tuple(mx.concatenate(taps, axis=1) for taps in zip(*self.parts, strict=True))


COLLAPSE_ROUNDS, COLLAPSE_RATE = 50, 0.05
"""A head whose first drafts were accepted at most this often over so many rounds is of no use to its row."""


@dataclass(slots=True)
class RowCounts:
    """Of the rounds so far: how many, at which depth, and what became of each drafted position."""

    rounds: int = 0
    drafted: int = 0
    depths: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=COLLAPSE_ROUNDS))

    def add(self, drafted: int, accepted: int, decided: int) -> None:
        """Adds a round whose first `decided` positions were decided before the text ended."""
        self.rounds += 1
        self.drafted += decided
        self.depths += [0] * (drafted + 1 - len(self.depths))
        self.depths[drafted] += 1
        while len(self.judged) < drafted:
            self.judged.append(0)
            self.accepted.append(0)
        for position in range(decided):
            self.judged[position] += 1
            self.accepted[position] += position < accepted
        if decided:
            self.recent.append(accepted > 0)

    @property
    def usual_depth(self) -> int:
        """How many tokens most rounds drafted; the fewest of equals, 0 before the first round."""
        return max(range(len(self.depths)), key=self.depths.__getitem__, default=0)

    @property
    def collapsed(self) -> bool:
        """Whether the latest rounds show that drafting leads nowhere."""
        return len(self.recent) == COLLAPSE_ROUNDS and sum(self.recent) <= COLLAPSE_RATE * COLLAPSE_ROUNDS


@dataclass(slots=True)
class Row:
    """The state of one sequence between rounds. `round` counts rounds ever begun; with the seed it names uniforms.

    `plain` rows have no history with the head and never draft; of `auto` rows `depth` is the most they may.
    `logprobs` is how many alternatives its tokens' log-probabilities name, None for none of it. `flat` says that a law
    of its text reached beyond the first candidates. `edges[n]` are the taps at the last of its first n positions, for
    every multiple n of `edge` that a round went past.
    """

    tokens: list[int]
    sampler: SamplerSettings
    depth: int
    plain: bool = False
    auto: bool = False
    round: int = 0
    pending: Pending | None = None
    dropped_pairs: int = 0
    counts: RowCounts = field(default_factory=RowCounts)
    degraded: list[str] = field(default_factory=list)
    shaper: Shaper | None = None
    matcher: Matcher | None = None
    logprobs: int | None = None
    flat: bool = False
    edge: int = 0
    edges: dict[int, Taps] = field(default_factory=dict)
    rule: str = field(init=False)
    drafting: SamplerSettings = field(init=False)

    def __post_init__(self) -> None:
        self.rule, self.drafting = self.sampler.rule, self.sampler.drafting

    @property
    def absorbed(self) -> int:
        """Pairs the head's first layer holds between rounds."""
        waiting = len(self.pending.tokens) if self.pending else 0
        return 0 if self.plain else len(self.tokens) - 1 - waiting - self.dropped_pairs

    def commit(self, tokens: Sequence[int]) -> None:
        """Makes tokens part of the text. The matcher has followed them already: it tells where the text ends."""
        self.tokens += tokens
        if self.shaper:
            self.shaper.commit(tokens)

    def add_pending(self, tokens: list[int], taps: Taps) -> int:
        """Queues pairs for the head, within the limit; gives how many older ones were dropped for it."""
        if not tokens:
            return 0
        self._note_edges(len(tokens), taps)
        if self.pending is None:
            self.pending = Pending(list(tokens), [taps])
        else:
            self.pending.append(tokens, taps)
        dropped = self.pending.drop_oldest(PENDING_LIMIT)
        self.dropped_pairs += dropped
        return dropped

    def _note_edges(self, count: int, taps: Taps) -> None:
        """Keeps the taps where blocks end, of the newest `count` positions that a forward has seen."""
        begin = len(self.tokens) - 1 - count
        for end in (
            range((begin // self.edge + 1) * self.edge, begin + count + 1, self.edge) if self.edge else ()
        ):
            self.edges[end] = tuple(mx.contiguous(tap[:, end - 1 - begin : end - begin]) for tap in taps)

    def degrade(self, reason: str) -> None:
        """Turns the row to plain decoding for good, visibly."""
        self.depth, self.plain, self.pending = 0, True, None
        self.tell(reason)

    def tell(self, reason: str) -> None:
        """Lets whoever asked know what is wrong with the head; the row goes on as it is."""
        if reason not in self.degraded:
            self.degraded.append(reason)
