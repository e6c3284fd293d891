"""What the engine does next: a chunk of some prompt, a round of some batch, or a call that waits for the device.

Pure policy over views of what is pending; seconds are told from outside. How many positions a chunk has, and what a
round does, is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CHUNK_S = 0.5
"""A chunk's time where nobody's stream waits for it."""
CHUNK_ROUNDS = 0.9
"""Time for other work between rounds, in rounds of the streams that wait for it. Rounds beside a prompt take up to
half as long again as undisturbed ones, so that with the round itself a gap is some two and a half of those; as much
again as the chunk is left for a machine that slows down in the middle of one, until a gap is four."""
UNKNOWN_ROUND_S = 0.1
"""What a round is taken to last before one was timed."""
OVERTAKEN = 3
"""How many chunks of others the prompt that came first lets go ahead of each of its own."""


@dataclass(frozen=True, slots=True)
class PrefillView:
    """A prompt being prefilled: positions left, and since when on the caller's clock."""

    id: str
    remaining: int
    since: float
    background: bool = False


@dataclass(frozen=True, slots=True)
class BatchView:
    """Rows that share rounds: a model's, or one that plays alone. `round_s` is its median round, None before one."""

    id: str
    round_s: float | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Go on with that prompt for about so many seconds. `waited_for` says that streams wait meanwhile."""

    id: str
    seconds: float
    waited_for: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """Play a round of that batch."""

    id: str


@dataclass(frozen=True, slots=True)
class Call:
    """Run the call that waits longest."""


Turn = Chunk | Round | Call


def chunk_seconds(batches: Sequence[BatchView]) -> float:
    """How long a chunk may take beside these batches: the one with the shortest round notices most."""
    rounds = [UNKNOWN_ROUND_S if batch.round_s is None else batch.round_s for batch in batches]
    return min([CHUNK_S, *(CHUNK_ROUNDS * seconds for seconds in rounds)])


class Turns:
    """Chunks and rounds take turns, and so do batches, by the time they were given. What it remembers is only that.

    Streams wait for one chunk between rounds at most; prompts get every other turn, the shortest first, and the one
    that came first never waits for more than `OVERTAKEN` chunks. Calls go first, but not two in a row. What streams
    have waited for already since their round is taken off a chunk's time; where much of it is gone, their round comes
    first, but not twice for the same chunk.
    """

    def __init__(self) -> None:
        self._called = self._chunked = self._put_off = False
        self._overtakes: tuple[str, int] = ("", 0)
        self._had: dict[str, float] = {}

    def choose(
        self,
        prefills: Sequence[PrefillView],
        batches: Sequence[BatchView],
        calls: int = 0,
        waited_s: float = 0.0,
    ) -> Turn | None:
        """The next turn, which is taken to happen; None where nothing is pending. `waited_s` are seconds since the
        latest round."""
        self._level(batches)
        turn = self._choose(prefills, batches, calls, waited_s)
        self._called = isinstance(turn, Call)
        if not self._called:  # whatever calls come between, the streams' turn is not lost
            self._chunked = isinstance(turn, Chunk)
        return turn

    def spent(self, batch: str, seconds: float) -> None:
        """How long a round of that batch took."""
        if batch in self._had:
            self._had[batch] += seconds

    def _choose(
        self, prefills: Sequence[PrefillView], batches: Sequence[BatchView], calls: int, waited_s: float
    ) -> Turn | None:
        if calls and not (self._called and (prefills or batches)):
            return Call()
        if prefills and not batches:
            return Chunk(self._next_prefill(prefills).id, CHUNK_S)
        if prefills and not self._chunked:
            whole = chunk_seconds(batches)
            left, scarce = max(whole - waited_s, 0.0), waited_s > whole / 2
            self._put_off = scarce and not self._put_off
            if not self._put_off:
                return Chunk(self._next_prefill(prefills).id, left, waited_for=True)
        if batches:
            return Round(min(batches, key=lambda batch: self._had[batch.id]).id)
        return None

    def _next_prefill(self, prefills: Sequence[PrefillView]) -> PrefillView:
        eldest = min(prefills, key=lambda prefill: prefill.since)
        shortest = min(prefills, key=lambda prefill: (prefill.background, prefill.remaining, prefill.since))
        name, count = self._overtakes
        if name != eldest.id:
            count = 0
        if count >= OVERTAKEN or shortest is eldest:
            self._overtakes = (eldest.id, 0)
            return eldest
        self._overtakes = (eldest.id, count + 1)
        return shortest

    def _level(self, batches: Sequence[BatchView]) -> None:
        """A batch that is new begins level with the one that has had the least; one that is gone is forgotten."""
        known = {batch.id: self._had[batch.id] for batch in batches if batch.id in self._had}
        least = min(known.values(), default=0.0)
        self._had = {batch.id: known.get(batch.id, least) - least for batch in batches}
