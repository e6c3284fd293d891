"""Runs a prompt through body and head up to its last token, which the first round runs. Yields between chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtplxd.engine.batch import Batch
from mtplxd.families.protocols import Taps
from mtplxd.platform.mlx import mx

CHUNK = 512
"""Most positions a forward; chunks are cut at absolute multiples, so that the partition never depends on the mode."""
SCORES = 1 << 20
"""Most query-key pairs a forward makes for a head: behind a long context, chunks get shorter, not scores larger."""


def prefill(batch: Batch, prompt: Sequence[int], chunk: int = CHUNK) -> Iterator[int]:
    """Fills the caches of a batch of one row with prompt[:-1]; yields the positions done after each chunk.

    Leaves the newest pair pending: the first round's drafts begin with it.
    """
    count = len(prompt) - 1
    begin = 0
    while begin < count:
        end = min(begin + chunk_at(begin, chunk), count)
        hidden, taps = batch.target.run(mx.array([prompt[begin:end]], mx.int32), batch.cache)
        _absorb_pairs(batch, prompt[begin + 1 : end + 1], taps, is_last=end == count)
        caches = [array for layer in (*batch.cache, *batch.head_cache) for array in layer.state]
        mx.eval(caches if caches else hidden, taps)
        yield end
        begin = end


def chunk_at(begin: int, chunk: int = CHUNK) -> int:
    """Positions of the chunk that begins at `begin`: `chunk`, halved until its scores are few enough."""
    while chunk > 1 and chunk * (begin + chunk) > SCORES:
        chunk //= 2
    return chunk


def _absorb_pairs(batch: Batch, tokens: Sequence[int], taps: Taps, *, is_last: bool) -> None:
    if batch.head is None:
        return
    ready = len(tokens) - 1 if is_last else len(tokens)
    if ready:
        pairs = tuple(tap[:, :ready] for tap in taps)
        batch.head.absorb(mx.array([tokens[:ready]], mx.int32), pairs, batch.head_cache)
    if is_last:
        newest = tuple(mx.contiguous(tap[:, ready:]) for tap in taps)
        batch.rows[0].add_pending(list(tokens[ready:]), newest)
