"""Computes again what a row held when it was set aside without a copy. Chooses no token.

The text was decided already, so nothing of it can change; what is computed again is where it goes on from. A
reproducible row gets the very bits it had: its prompt is cut as before, and what it had made runs in forwards of the
one shape that its rounds have, in which a position's numbers do not depend on where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator

from mtplxd.engine.batch import open_caches
from mtplxd.engine.fixed_shape import BLOCK, run_in_shape
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.request import Request
from mtplxd.engine.row import Row
from mtplxd.platform.mlx import mx


class Recall(Prefill):
    """Reads a row's prompt and what it has made so far, into fresh caches."""

    def __init__(self, request: Request, row: Row) -> None:
        row.pending, row.dropped_pairs = None, 0
        super().__init__(open_caches(request, row), [*row.tokens])
        self._decoded = len(request.prompt) - 1

    def _end(self, wanted: int) -> int:
        if self._fixed is None:
            return super()._end(wanted)
        if self.done < self._decoded:
            return min(super()._end(wanted), self._decoded)
        assert self.batch.width is not None
        return self.done + min(self.batch.width, BLOCK - self.done % BLOCK, self.total - self.done)

    def _run(self, end: int, parts: int) -> Iterator[None]:
        """What was decoded runs as a round's forward does, inside one block; the prompt as it ran before."""
        batch, begin = self.batch, self.done
        if self._fixed is None or begin < self._decoded:
            yield from super()._run(end, parts)
            return
        assert batch.width is not None
        tokens = mx.array([self._prompt[begin:end]], mx.int32)
        hidden, taps = run_in_shape(batch.target, tokens, batch.cache, batch.width)
        yield from self._settle(begin, end, hidden, taps, parts)
