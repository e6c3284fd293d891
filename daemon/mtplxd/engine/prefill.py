"""Runs a prompt through body and head, chunk by chunk, up to its last token, which the first round runs.

Between chunks the row stands as it does between rounds: the body holds `done` positions, the newest pair is pending.
A head that fails costs the row its drafts, never the prompt.
What is done of a prompt therefore depends on its first `done` tokens alone, the pending pair's token excepted. How
long a chunk may be, and what is done between two, is decided outside. A chunk that others wait for is computed in
parts, some layers each, between which they may have the device: the numbers are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mtplxd.engine.round import HEAD_FAILED
from mtplxd.engine.row import Pending
from mtplxd.families.protocols import Taps
from mtplxd.platform.mlx import Array, mx

if TYPE_CHECKING:
    from mtplxd.engine.batch import Batch

log = logging.getLogger(__name__)

CHUNK = 512
"""Most positions a forward."""
FIXED_CHUNK = 64
"""Positions a forward of a reproducible row, which is cut at absolute multiples of it whatever the load; other chunks
that reach one end at one, so that what is kept of them is whole blocks."""
PARTS = 32
"""Most parts of a chunk that others wait for; fewer where there are fewer layers."""
SCORES = 1 << 20
"""Most query-key pairs a forward makes for a head: behind a long context, chunks get shorter, not scores larger."""

Over = Callable[[], bool]
"""Asked after a part of some work: whether the next one had better wait."""
OnChunk = Callable[[int, int, Taps], None]
"""Hears of a chunk once it is evaluated: where it began and ended, and its taps."""


class Prefill:
    """One prompt on its way into the caches of a batch of one row, from what they hold already.

    `fixed` cuts at absolute multiples of so many positions, whatever `step` is asked for; a reproducible row's prompt
    always is cut so. `total` is the positions of
    the prompt but its last, `begin` how many were there before. No other chunk goes beyond one of the `marks`.
    """

    def __init__(
        self, batch: Batch, prompt: Sequence[int], fixed: int | None = None, on_chunk: OnChunk | None = None
    ) -> None:
        self.batch = batch
        self.total = len(prompt) - 1
        self.begin = self.done = batch.cache[0].lengths[0] if batch.cache else 0
        self.marks: set[int] = set()
        if fixed is None and batch.rows[0].sampler.reproducible:
            fixed = FIXED_CHUNK
        self._prompt, self._fixed, self._on_chunk = prompt, fixed, on_chunk
        self._chunk: Iterator[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether only the last token is left."""
        return self.done >= self.total

    @property
    def within(self) -> bool:
        """Whether a chunk is computed in part."""
        return self._chunk is not None

    def step(self, limit: int = CHUNK, over: Over | None = None) -> int:
        """Runs the next chunk, at most `limit` positions, and waits for it; gives how many positions it had.

        With a fixed partition: whole chunks of it, as many as the limit holds and one at least. With `over` a chunk is
        computed in parts, one at least, until that says so: the next call goes on with it, and positions count once
        the whole chunk is there.
        """
        begin = self.done
        while not self.finished:
            if self._chunk is None:
                if (end := self._end(begin + limit)) > begin + limit and self.done > begin:
                    break
                self._chunk = self._run(end, PARTS if over else 1)
            for _ in self._chunk:
                if over and over():
                    return self.done - begin
            self._chunk = None
            if self._fixed is None or (over and over()):
                break
        return self.done - begin

    def _end(self, wanted: int) -> int:
        if self._fixed is not None:
            aligned = (self.done // self._fixed + 1) * self._fixed
            return min(self.done + chunk_at(self.done, self._fixed), aligned, self.total)
        end = self.done + chunk_at(self.done, max(1, min(wanted - self.done, CHUNK)))
        end = min([end, *(mark for mark in self.marks if mark > self.done)])
        if end >= self.total:
            return self.total
        whole = end // FIXED_CHUNK * FIXED_CHUNK
        return whole if whole > self.done else end

    def _run(self, end: int, parts: int) -> Iterator[None]:
        """Computes up to `end`; stops between two of so many parts."""
        begin, batch = self.done, self.batch
        hidden, taps = batch.target.run(mx.array([self._prompt[begin:end]], mx.int32), batch.cache)
        yield from self._settle(begin, end, hidden, taps, parts)

    def _settle(self, begin: int, end: int, hidden: Array, taps: Taps, parts: int = 1) -> Iterator[None]:
        """Feeds the head what a forward over positions `begin` to `end` gave, and waits for both in so many parts."""
        try:
            self._feed_head(begin, end, taps)
            yield from self._wait(hidden, taps, parts)
        except Exception:  # whatever is wrong with a head, the prompt can be read without it
            if self.batch.head is None:
                raise
            log.exception("the head failed while a prompt was read")
            self.batch.lose_head(HEAD_FAILED)
            yield from self._wait(hidden, taps, parts)  # what is wrong with the body comes again
        self.done = end
        if self._on_chunk:
            self._on_chunk(begin, end, taps)

    def _wait(self, hidden: Array, taps: Taps, parts: int) -> Iterator[None]:
        """Evaluates what was run, layer after layer; each builds on the ones before it."""
        batch = self.batch
        count = max(1, -(-len(batch.cache) // parts))
        for first in range(0, len(batch.cache) - count, count):
            mx.eval([layer.state for layer in batch.cache[first : first + count]])
            yield
        caches = [array for layer in (*batch.cache, *batch.head_cache) for array in layer.state]
        pending = batch.rows[0].pending
        mx.eval(caches if caches else hidden, taps, pending.parts if pending else [])

    def _feed_head(self, begin: int, end: int, taps: Taps) -> None:
        """Absorbs the pending pair and all of the chunk's but its newest, which is pending then."""
        [row] = self.batch.rows
        if self.batch.head is None or row.plain:
            return
        count, pending = end - begin, row.pending
        ready = tuple(tap[:, : count - 1] for tap in taps)
        tokens = list(self._prompt[begin + 1 : end])
        if pending:
            tokens = [*pending.tokens, *tokens]
            ready = tuple(mx.concatenate(pair, axis=1) for pair in zip(pending.joined(), ready, strict=True))
        if tokens:
            self.batch.head.absorb(mx.array([tokens], mx.int32), ready, self.batch.head_cache)
        newest = tuple(mx.contiguous(tap[:, count - 1 :]) for tap in taps)
        row.pending = Pending([self._prompt[end]], [newest])


def prefill(batch: Batch, prompt: Sequence[int], chunk: int = CHUNK) -> Iterator[int]:
    """Fills the caches of a batch of one row with prompt[:-1]; yields the positions done after each chunk.

    Leaves the newest pair pending: the first round's drafts begin with it.
    """
    running = Prefill(batch, prompt)
    while not running.finished:
        running.step(chunk)
        yield running.done


def chunk_at(begin: int, chunk: int = CHUNK) -> int:
    """Positions of the chunk that begins at `begin`: `chunk`, halved until its scores are few enough."""
    while chunk > 1 and chunk * (begin + chunk) > SCORES:
        chunk //= 2
    return chunk
