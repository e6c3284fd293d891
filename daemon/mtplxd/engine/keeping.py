"""Cuts the blocks of a text out of its row's caches: of the prompt as it is read, of the answer once it is made.

A state is kept where the row stands and as often as it pays; the head's part as far as the head's history is whole.
What is cut is evaluated at once: who writes to a cache that is still to be read would copy all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from mtplxd.engine.batch import Batch
from mtplxd.engine.blocks import PROMPT_END, TURN_END, Block
from mtplxd.engine.catching_up import CHUNK
from mtplxd.engine.prefill import FIXED_CHUNK
from mtplxd.families.pieces import Piece, cut, ends_only, has_state, keeps_pairs, state_bytes
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import mx

log = logging.getLogger(__name__)

STATE_EVERY = 256
"""Positions behind which another state is kept of a prompt though it is larger than all that is kept beside it."""

Put = Callable[[int, int | None, Block], bool]
"""Takes a block: its place, its length where it is a tail; False where it was kept nowhere."""


class Keeping:
    """Keeps the blocks of one prompt as its prefill goes, until one finds no room: `until` is how far it kept then.

    `marks` are positions where others part from it; `next` is the first block that is not kept yet.
    """

    def __init__(
        self, put: Put, block: int, batch: Batch, total: int, begin: int, *, fixed: bool = False
    ) -> None:
        self.until: int | None = None
        self.marks: set[int] = set()
        self.next = begin // block
        self._put, self._block, self._batch, self._total, self._fixed = put, block, batch, total, fixed
        self._state_at = begin
        self._stateful = any(has_state(layer) for layer in batch.cache)
        batch.rows[0].edge = block

    def __call__(self, begin: int, end: int, taps: Taps) -> None:
        """Hears of a chunk: cuts the blocks that it completes, and what is left at the end of the prompt."""
        cuts: list[tuple[int, int | None, Block]] = []
        last = end // FIXED_CHUNK * FIXED_CHUNK if self._fixed else end
        while self.until is None and (self.next + 1) * self._block <= last:
            cuts.append((self.next, None, self._cut(begin, end, (self.next + 1) * self._block, taps)))
            self.next += 1
        tail = end % self._block
        if self.until is None and end == self._total and tail and not self._fixed:
            cuts.append((self.next, tail, self._cut(begin, end, end, taps)))
        mx.eval([block.arrays for _, _, block in cuts])
        for place, length, block in cuts:
            if self.until is None and not self._put(place, length, block):
                self.until = place * self._block

    def _cut(self, begin: int, end: int, last: int, taps: Taps) -> Block:
        first, batch, [row] = self.next * self._block, self._batch, self._batch.rows
        with_state = not self._stateful or self._wants_state(end, last)
        lasting = PROMPT_END if last == self._total and last % self._block else 0
        body = tuple(cut(layer, first, last, with_state=with_state) for layer in batch.cache)
        if batch.head is None or row.plain or row.dropped_pairs:  # see `cut_head`
            return Block(body, lasting=lasting)
        place = last - 1 - begin
        newest = tuple(mx.contiguous(tap[:, place : place + 1]) for tap in taps)
        return Block(body, cut_head(batch.head_cache, first, last), newest, lasting)

    def _wants_state(self, end: int, last: int) -> bool:
        """At the end of what is kept, where another prompt parts, and as often as states take no more than the rest."""
        if last != end:
            return False
        since, final = last - self._state_at, self._total // self._block * self._block
        states = sum(state_bytes(layer) for layer in self._batch.cache)
        slots = sum(layer.nbytes for layer in self._batch.cache) - states
        often = since >= STATE_EVERY or states * end <= slots * since
        if not often and last not in (self._total, final, *self.marks):
            return False
        self._state_at = last
        return True


def cut_head(layers: Sequence[LayerCache], first: int, last: int, row: int = 0) -> tuple[Piece, ...]:
    """The head's slots that the tokens of [first, last) determine: a further layer's lie one further back.

    Only of a row whose head knows its text from the first pair on. One that began anew tells keys of other positions,
    as its first pair stands at 0, and behind its first layer other numbers, as they depend on all pairs before: its
    part would not be what a fresh reading makes. Nor can that be made up for later, as nobody keeps the taps of the
    positions that were not read. Such a text gets its head's part once it is read from its beginning.
    """
    return tuple(
        cut(layer, max(0, first - 1 - lag), max(0, last - 1 - lag), row=row)
        for lag, layer in enumerate(layers)
    )


def cut_turn(
    batch: Batch, row: int, first_block: int, size: int, *, quiet: bool
) -> list[tuple[int, int | None, Block]]:
    """The blocks of a row that has come to its end, from `first_block` on, and the tail behind them, evaluated.

    They end before the last token, which no forward has seen. `quiet` says that no round is in flight, so that pairs
    which wait for the head can go through it.
    """
    end = len(batch.rows[row].tokens) - 1
    history = _History(batch, row, quiet=quiet)
    lasting = TURN_END if any(ends_only(layer) for layer in (*batch.cache, *batch.head_cache)) else 0
    blocks: list[tuple[int, int | None, Block]] = []
    for place in range(first_block, -(-end // size)):
        first, last = place * size, min((place + 1) * size, end)
        body = tuple(cut(layer, first, last, with_state=last == end, row=row) for layer in batch.cache)
        head, taps = history.part(first, last)
        tail = None if last - first == size else last - first
        blocks.append((place, tail, Block(body, head, taps, lasting=0 if tail is None else lasting)))
    mx.eval([block.arrays for _, _, block in blocks])
    return blocks


class _History:
    """What a row's head knows of its text: how many pairs, in which caches, and the taps where blocks end."""

    def __init__(self, batch: Batch, row: int, *, quiet: bool) -> None:
        one = batch.rows[row]
        self._layers, self._row, self._pairs = batch.head_cache, row, one.absorbed
        self._edges: dict[int, Taps] = dict(one.edges)
        whole = batch.head is not None and not one.plain and not one.dropped_pairs and one.pending is not None
        if not whole:
            self._pairs = -1
            return
        assert one.pending is not None
        newest = one.pending.joined()
        self._edges[len(one.tokens) - 1] = tuple(mx.contiguous(tap[:, -1:]) for tap in newest)
        waiting = len(one.pending.tokens) - 1
        if not any(keeps_pairs(layer) for layer in batch.head_cache):
            self._pairs += waiting
        elif waiting and quiet:
            try:
                self._layers, self._row = _caught_up(batch, row, waiting), 0
                self._pairs += waiting
            except Exception:  # a head that fails costs the kept text its part, nothing else
                log.exception("the head failed at the end of a turn")

    def part(self, first: int, last: int) -> tuple[tuple[Piece, ...], Taps]:
        """The head's part of a block, nothing where its history does not reach that far."""
        if self._pairs < last - 1 or last not in self._edges:
            return (), ()
        return cut_head(self._layers, first, last, self._row), self._edges[last]


def _caught_up(batch: Batch, row: int, count: int) -> list[Any]:
    """Copies of the row's head caches with its first `count` waiting pairs behind."""
    one = batch.rows[row]
    assert batch.head is not None
    assert one.pending is not None
    layers = [layer.copy_row(row) for layer in batch.head_cache]
    tokens, taps = one.pending.first(count)
    for begin in range(0, count, CHUNK):
        part = slice(begin, begin + CHUNK)
        batch.head.absorb(mx.array([tokens[part]], mx.int32), tuple(tap[:, part] for tap in taps), layers)
    return layers
