"""Computes again what a row held when it was set aside without a copy. Chooses no token.

The text was decided already, so nothing of it can change; what is computed again is where it goes on from. A
reproducible row gets the very bits it had: its prompt is cut as before, and what it had made runs in forwards of the
one shape that its rounds have, in which a position's numbers do not depend on where it stands.
"""

from __future__ import annotations

from mtplxd.engine.batch import open_caches
from mtplxd.engine.fixed_shape import BLOCK, run_in_shape
from mtplxd.engine.prefill import CHUNK, Prefill
from mtplxd.engine.request import Request
from mtplxd.engine.row import Row
from mtplxd.platform.mlx import mx


class Recall(Prefill):
    """Reads a row's prompt and what it has made so far, into fresh caches."""

    def __init__(self, request: Request, row: Row) -> None:
        row.pending, row.dropped_pairs = None, 0
        super().__init__(open_caches(request, row), [*row.tokens])
        self._decoded = len(request.prompt) - 1

    def step(self, limit: int = CHUNK) -> int:
        """The next chunk, as `Prefill`'s; the positions of rounds in rounds' shapes."""
        if self._fixed is None or self.finished:
            return super().step(limit)
        before = self.done
        if before < self._decoded:
            self._run(min(self._end(before + limit), self._decoded))
        else:
            self._run_as_round()
        return self.done - before

    def _run_as_round(self) -> None:
        """As many positions as a round's forward has, inside one block."""
        batch, begin = self.batch, self.done
        assert batch.width is not None
        count = min(batch.width, BLOCK - begin % BLOCK, self.total - begin)
        tokens = mx.array([self._prompt[begin : begin + count]], mx.int32)
        hidden, taps = run_in_shape(batch.target, tokens, batch.cache, batch.width)
        self._settle(begin, begin + count, hidden, taps)
