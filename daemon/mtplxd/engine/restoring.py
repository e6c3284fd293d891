"""Gives a row what is kept of its prompt, a little at a time: blocks arrive, then layer after layer is filled.

Nobody waits for a disk here: what has not arrived is asked for again in a later step. Whatever goes wrong costs the
row what was kept, nothing else: it stands at its prompt's beginning then, as if there had been nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

from mtplxd.engine.batch import Batch
from mtplxd.engine.blocks import Block, unpack
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.row import Pending
from mtplxd.families.pieces import Piece, fill
from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import mx

log = logging.getLogger(__name__)

TRIES = 3
"""How often what is missing is planned around before the disk is left alone."""


class Fetch(Protocol):
    """See `store.tiers`."""

    @property
    def held(self) -> dict[int, Any]: ...

    @property
    def over(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    @property
    def failed(self) -> bool: ...

    def take(self) -> tuple[int, str, Any] | None: ...

    def wait(self, seconds: float) -> None: ...

    def close(self) -> None: ...


class Path(Protocol):
    """Where a row's blocks come from: planned, fetched, and handed on once they are there."""

    def plan(self, *, disk: bool) -> tuple[int, int | None, bool]:
        """How many whole blocks, a tail's length, and whether the head's part comes along."""

    def fetch(self) -> Fetch:
        """Begins to get what was planned last."""

    def arrived(self, place: int, block: Block) -> None:
        """A block came from the disk."""

    def spoilt(self, place: int, part: str) -> None:
        """Nobody can make sense of what came from there."""

    def done(self, batch: Batch, length: int, *, headed: bool) -> Prefill:
        """The row stands behind `length` positions; gives the prefill of the rest."""


class Restoring:
    """One row on its way to stand behind what is kept of its prompt."""

    def __init__(self, path: Path, batch: Batch, prompt: Sequence[int], block: int) -> None:
        self._path, self._batch, self._prompt, self._block = path, batch, prompt, block
        self._fetch: Fetch | None = None
        self._waiting = False
        self._work = self._run()
        self._result: Prefill | None = None

    def step(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> Prefill | None:
        """Works for about so long, less where it has to wait; the prefill of the rest, once the row stands."""
        until = clock() + seconds
        while self._result is None:
            self._waiting = next(self._work, False)
            if self._waiting or clock() >= until:
                break
        return self._result

    @property
    def ready(self) -> bool:
        """Whether a step would do anything: not where it waits for the disk."""
        return not self._waiting or self._fetch is None or self._fetch.ready

    def wait(self, seconds: float) -> None:
        """Until something arrived from the disk, or the time is over."""
        if self._fetch and self._waiting:
            self._fetch.wait(seconds)

    def close(self) -> None:
        """The row needs nothing any more."""
        self._work.close()
        if self._fetch:
            self._fetch.close()

    def finish(self) -> Prefill:
        """All of it, however long it takes."""
        while (found := self.step(1.0)) is None:
            self.wait(1.0)
        return found

    def _run(self) -> Generator[bool, None, None]:
        """Yields between two steps of its work: whether it has to wait."""
        try:
            blocks, length, headed = yield from self._gather()
            if blocks:
                yield from self._fill(blocks, length, headed=headed)
        except (ValueError, KeyError, IndexError, TypeError):  # what is kept is not what these caches hold
            log.exception("what was kept of a prompt could not be used")
            self._empty()
            length, headed = 0, False
        finally:
            if self._fetch:
                self._fetch.close()
        self._result = self._path.done(self._batch, length, headed=headed)

    def _gather(self) -> Any:
        """All blocks of a plan; another plan where one of them is not to be had."""
        found: dict[int, Block] = {}
        for attempt in range(TRIES + 1):
            count, tail, headed = self._path.plan(disk=attempt < TRIES)
            places = [*range(count), *([count] if tail else [])]
            self._fetch = self._path.fetch()
            found = {**self._fetch.held}
            fresh: dict[int, Block] = {}
            while not self._fetch.over:
                if (arrival := self._fetch.take()) is None:
                    yield True
                    continue
                place, part, content = arrival
                if (block := self._unpack(place, part, content)) is None:
                    break
                fresh[place] = block.joined(fresh.get(place))
                yield False
            whole = all(place in found or place in fresh for place in places)
            for place in sorted(fresh):
                found[place] = fresh[place].joined(found.get(place))
                self._path.arrived(place, found[place])
            if whole and self._fetch.over and not self._fetch.failed:
                return [found[place] for place in places], count * self._block + (tail or 0), headed
            self._fetch.close()
        return [], 0, False

    def _unpack(self, place: int, part: str, content: Any) -> Block | None:
        try:
            block = unpack(part, content.meta, content.tensors)
            mx.eval(block.arrays)
        except ValueError as error:
            log.warning("a kept block cannot be used: %s", error)
            self._path.spoilt(place, part)
            return None
        return block

    def _fill(self, blocks: Sequence[Block], length: int, *, headed: bool) -> Iterator[bool]:
        batch, [row] = self._batch, self._batch.rows
        yield from _fill_each(batch.cache, [block.body for block in blocks])
        if batch.head is None or row.plain:
            return
        if headed:
            yield from _fill_each(batch.head_cache, [block.head for block in blocks])
            row.pending = Pending([self._prompt[length]], [tuple(map(mx.contiguous, blocks[-1].taps))])
        else:
            row.dropped_pairs = length

    def _empty(self) -> None:
        batch, [row] = self._batch, self._batch.rows
        for layer in (*batch.cache, *batch.head_cache):
            layer.roll_back([0])
        row.pending, row.dropped_pairs = None, 0


def _fill_each(layers: Sequence[LayerCache], pieces: Sequence[tuple[Piece, ...]]) -> Iterator[bool]:
    for place, layer in enumerate(layers):
        fill(layer, [of_block[place] for of_block in pieces])
        mx.eval(layer.state)
        yield False
