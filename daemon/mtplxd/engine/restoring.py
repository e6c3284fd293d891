"""Gives a row what is kept of its prompt, a little at a time: blocks arrive, and are put in place some at a time.

Nobody waits for a disk here: what has not arrived is asked for again in a later step. Whatever goes wrong costs the
row what was kept, nothing else: it stands at its prompt's beginning then, as if there had been nothing. What is on its
way is bounded: beside the row's own caches there is never more than a few blocks of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol

from mtplxd.engine.batch import Batch
from mtplxd.engine.blocks import Block, unpack
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.row import Pending
from mtplxd.families.filling import Filler, filler
from mtplxd.families.protocols import Taps
from mtplxd.platform.mlx import mx

log = logging.getLogger(__name__)

TRIES = 3
"""How often what is missing is planned around before the disk is left alone."""
SEGMENT = 16 << 20
"""Bytes of blocks that are gathered before they are put in place."""


class Fetch(Protocol):
    """See `store.tiers`."""

    @property
    def coming(self) -> Mapping[int, int]:
        """By place, how many parts of a block come from the disk, in the order of the places."""

    @property
    def over(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    def take(self) -> tuple[int, str, Any] | None: ...

    def wait(self, seconds: float) -> None: ...

    def close(self) -> None: ...


class Path(Protocol):
    """Where a row's blocks come from: planned, fetched, and handed on once they are there."""

    def plan(self, *, disk: bool) -> tuple[int, int | None, bool]:
        """How many whole blocks, a tail's length, and whether the head's part comes along."""

    def fetch(self) -> Fetch:
        """Begins to get what was planned last."""

    def here(self, place: int) -> Block | None:
        """What memory has of a block of the plan now."""

    def arrived(self, place: int, block: Block) -> None:
        """A block came from the disk."""

    def spoilt(self, place: int, part: str) -> None:
        """Nobody can make sense of what came from there."""

    def gathered(self, nbytes: int) -> None:
        """So many more bytes of blocks wait to be put in place; fewer where negative."""

    def done(self, batch: Batch, length: int, *, headed: bool) -> Prefill:
        """The row stands behind `length` positions; gives the prefill of the rest."""


class Restoring:
    """One row on its way to stand behind what is kept of its prompt."""

    def __init__(self, path: Path, batch: Batch, prompt: Sequence[int], block: int) -> None:
        self._path, self._batch, self._prompt, self._block = path, batch, prompt, block
        self._fetch: Fetch | None = None
        self._waiting = False
        self._gathered = 0
        self.begun = time.perf_counter()
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
        self._let_go()

    def finish(self) -> Prefill:
        """All of it, however long it takes."""
        while (found := self.step(1.0)) is None:
            self.wait(1.0)
        return found

    def _run(self) -> Generator[bool, None, None]:
        """Yields between two steps of its work: whether it has to wait."""
        length, headed = 0, False
        try:
            for attempt in range(TRIES + 1):
                count, tail, headed = self._path.plan(disk=attempt < TRIES)
                planned = count * self._block + (tail or 0)
                if (yield from self._restore(count + (tail is not None), planned, headed=headed)):
                    length = planned
                    break
        except (ValueError, KeyError, IndexError, TypeError):  # what is kept is not what these caches hold
            log.exception("what was kept of a prompt could not be used")
            self._empty()
            length, headed = 0, False
        finally:
            self._let_go()
        self._result = self._path.done(self._batch, length, headed=headed)

    def _restore(self, places: int, length: int, *, headed: bool) -> Generator[bool, None, bool]:
        """Brings the row behind the blocks of a plan; False, and nothing has happened to it, where one is not to be
        had."""
        headed = headed and self._has_head
        self._fetch = self._path.fetch()
        fillers = self._open_layers(length, headed=headed)
        taps: Taps = ()
        for place in range(places):
            block = yield from self._block_at(place)
            if block is None or not block.body or (headed and not block.taps):
                self._let_go()
                return False
            taps = block.taps
            for filling, piece in zip(fillers, (*block.body, *(block.head if headed else ())), strict=True):
                filling.add(piece)
            self._gather(block.nbytes)
            if self._gathered >= SEGMENT:
                yield from self._settle(fillers)
        if places:
            yield from self._settle(fillers)
            yield from self._finish(fillers)
            self._stand(length, taps, headed=headed)
        self._let_go()
        return True

    def _open_layers(self, length: int, *, headed: bool) -> list[Filler]:
        """What fills each layer: a head's further ones stand one further back each."""
        batch = self._batch
        body = [filler(layer, length) for layer in batch.cache]
        if not headed:
            return body
        return body + [filler(layer, max(0, length - 1 - lag)) for lag, layer in enumerate(batch.head_cache)]

    def _block_at(self, place: int) -> Generator[bool, None, Block | None]:
        """A block of the plan, once all of it is there; None where it is not to be had."""
        assert self._fetch is not None
        fresh: Block | None = None
        for _ in range(self._fetch.coming.get(place, 0)):
            while (arrival := self._fetch.take()) is None:
                if self._fetch.over:
                    return None
                yield True
            part = arrival[1]
            if (block := self._unpack(place, part, arrival[2])) is None:
                return None
            fresh = block.joined(fresh)
            yield False
        here = self._path.here(place)
        if fresh is None:
            return here
        whole = fresh.joined(here)
        self._path.arrived(place, whole)
        return whole

    def _unpack(self, place: int, part: str, content: Any) -> Block | None:
        try:
            block = unpack(part, content.meta, content.tensors)
            mx.eval(block.arrays)
        except ValueError as error:
            log.warning("a kept block cannot be used: %s", error)
            self._path.spoilt(place, part)
            return None
        return block

    def _settle(self, fillers: Sequence[Filler]) -> Iterator[bool]:
        """Puts in place what was gathered, layer after layer."""
        for filling in fillers:
            filling.settle()
            yield False
        self._gather(-self._gathered)

    def _finish(self, fillers: Sequence[Filler]) -> Iterator[bool]:
        """Lets layer after layer stand behind what it was filled with."""
        layers = [*self._batch.cache, *self._batch.head_cache]
        for layer, filling in zip(layers, fillers, strict=False):
            filling.finish()
            mx.eval(layer.state)
            yield False

    def _stand(self, length: int, taps: Taps, *, headed: bool) -> None:
        [row] = self._batch.rows
        if not self._has_head:
            return
        if headed:
            row.pending = Pending([self._prompt[length]], [tuple(map(mx.contiguous, taps))])
        else:
            row.dropped_pairs = length

    @property
    def _has_head(self) -> bool:
        return self._batch.head is not None and not self._batch.rows[0].plain

    def _gather(self, nbytes: int) -> None:
        self._gathered += nbytes
        self._path.gathered(nbytes)

    def _let_go(self) -> None:
        self._gather(-self._gathered)
        if self._fetch:
            self._fetch.close()

    def _empty(self) -> None:
        batch, [row] = self._batch, self._batch.rows
        for layer in (*batch.cache, *batch.head_cache):
            layer.roll_back([0])
        row.pending, row.dropped_pairs = None, 0
