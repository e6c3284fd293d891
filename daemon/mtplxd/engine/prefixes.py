"""Lets prompts that begin alike share what was computed for the beginning: what is kept of one, what another gets back.

What is kept are blocks: the body's and the head's part of each, and the taps at its end, with which a row that goes on
from there makes the pair whose token only it knows. Where blocks are kept, and how long, is the store's; how they are
cut is `keeping`'s, how a row gets them `restoring`'s, how they get to the disk `backlog`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from mtplxd.engine.backlog import Backlog, Sink
from mtplxd.engine.batch import Batch
from mtplxd.engine.blocks import Block
from mtplxd.engine.identity import FIXED, FREE, facts_of
from mtplxd.engine.keeping import Keeping, cut_turn
from mtplxd.engine.prefill import FIXED_CHUNK, Prefill
from mtplxd.engine.request import STORE_OFF, STORE_ON, Request
from mtplxd.engine.restoring import Fetch, Restoring
from mtplxd.engine.sharing import Asked
from mtplxd.families.load import LoadedModel
from mtplxd.families.pieces import can_cut, reach

log = logging.getLogger(__name__)

LEAST_WAITING = 16 << 20
"""Bytes that may wait to be copied, and to be written, however little memory there is: else nothing ever is kept."""
OFF = "store_off"
"""Why a request that does not ask the disk gets nothing from there."""


class Plan(Protocol):
    """See `store.planner`."""

    @property
    def count(self) -> int: ...

    @property
    def tail(self) -> int | None: ...

    @property
    def headed(self) -> bool: ...

    def length(self, block: int) -> int: ...


class Miss(Protocol):
    """Why no more was found, "" where nothing is missing."""

    @property
    def reason(self) -> str: ...

    @property
    def at(self) -> int | None: ...


class Store(Sink, Protocol):
    """Where blocks are kept, by names that only it makes. See `store.tiers`."""

    @property
    def limit(self) -> int: ...

    @property
    def block(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def on_disk(self) -> bool: ...

    @property
    def writable(self) -> bool: ...

    @property
    def read_ahead(self) -> int: ...

    def bound_ahead(self, nbytes: int) -> None: ...

    def bound_queue(self, nbytes: int) -> None: ...

    def chain(self, facts: Mapping[str, str], tokens: Sequence[int]) -> Any: ...

    def need(self, **words: Any) -> Any: ...

    def plan(self, chains: Any, need: Any, *, disk: bool = True) -> Plan: ...

    def fetch(self, chains: Any, found: Any, *, disk: bool = True) -> Fetch: ...

    def get(self, chains: Any, place: int, length: int | None = None) -> Block | None: ...

    def put(self, chains: Any, place: int, payload: Block, length: int | None = None) -> bool: ...

    def discard(self, chains: Any, place: int, part: str, length: int | None = None) -> None: ...

    def why(self, chains: Any, need: Any, length: int) -> Miss: ...

    def why_no_head(self, chains: Any) -> Miss: ...

    def note(self, positions: int, miss: str = "") -> None: ...

    def shrink(self, limit: int) -> int: ...

    def forget(self, tokens: Sequence[int], beyond: int) -> int: ...

    def drop(self, facts: Mapping[str, str]) -> None: ...


class Prefixes:
    """On the engine thread, as everything that has arrays. `block` is the store's positions of a block."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._backlog = Backlog(store)
        self._common = Common()
        self.block = store.block

    def seek(self, request: Request) -> Sought:
        """What there is for a request's prompt; restores nothing yet."""
        return Sought(self._store, self._backlog, request, self._common)

    @property
    def nbytes(self) -> int:
        """Bytes kept in memory now, which can be given up."""
        return self._store.nbytes

    @property
    def on_the_way(self) -> int:
        """Bytes that were read from the disk, or are about to be, and of blocks that wait to be put in place."""
        return self._store.read_ahead + self._common.gathered

    def bound(self, spare: int) -> None:
        """At most so many bytes are read from the disk before they are needed, less where that is more than ever; what
        those leave is for blocks that wait to be copied, and to be written."""
        self._store.bound_ahead(max(0, spare))
        waiting = max(LEAST_WAITING, (spare - self.on_the_way) // 2)
        self._backlog.bound(waiting)
        self._store.bound_queue(waiting)

    def give_up(self, nbytes: int) -> int:
        """Drops at least so many bytes where there are as many, the least recently used first; gives how many."""
        return self._store.shrink(max(0, self._store.nbytes - nbytes))

    def forget(self, model: LoadedModel, seconds: float = 5.0) -> None:
        """Drops all blocks of a model that leaves memory, from there; what was to be written is, within the time."""
        if model.content is None:  # nobody ever asked it for anything
            return
        self._backlog.flush(seconds, group_of(model))
        for partition in (FREE, FIXED):
            self._store.drop(facts_of(model, partition))

    def forget_texts(self, texts: Iterable[tuple[Sequence[int], int]]) -> int:
        """Drops what is in memory of these texts beyond so many of their tokens each, whether it waits to be written or
        not; gives the bytes it dropped."""
        dropped = 0
        for tokens, beyond in texts:
            self._backlog.forget(tokens, beyond)
            dropped += self._store.forget(tokens, beyond)
        return dropped

    def clear(self) -> int:
        """Drops all that is in memory, whether it waits to be written or not, and what rows that are there now would
        keep yet; gives the bytes it dropped."""
        self._common.wiped += 1
        self._backlog.clear()
        return self._store.shrink(0)

    def work(self, seconds: float) -> bool:
        """Hands bytes to the disk for about so long; tells whether there were any."""
        return self._backlog.work(seconds)

    def wait_s(self) -> float | None:
        """Seconds until there is work of that kind; None where there is none."""
        return self._backlog.wait_s()

    def flush(self, seconds: float) -> bool:
        """Hands on all that waits; False where the time was not enough."""
        return self._backlog.flush(seconds)


class Common:
    """What all rows together have: the bytes of blocks `gathered` that wait to be put in place, and how often all that
    is kept was `wiped`: a row that was there before keeps nothing any more."""

    def __init__(self) -> None:
        self.gathered = self.wiped = 0


class Sought:
    """One prompt and what is kept of it: asked for while it waits, used once it begins, kept on once it has ended."""

    def __init__(self, store: Store, backlog: Backlog, request: Request, common: Common) -> None:
        self.request, self._common, self._era = request, common, common.wiped
        self.fixed = request.sampler.reproducible
        self.drafts = request.depth > 0 and request.model.head is not None
        self.total = len(request.prompt) - 1
        self.miss = ""
        self._store, self._backlog = store, backlog
        self._partition = FIXED if self.fixed else FREE
        self._reads = store.on_disk and request.store == STORE_ON
        self._writes = store.on_disk and request.store != STORE_OFF
        self._chain = store.chain(facts_of(request.model, self._partition), request.prompt)
        self._found: Plan | None = None
        self._keeping: Keeping | None = None
        self._reach = 0
        self._begun = False

    def asked(self, prefill: Prefill | None) -> Asked:
        """This prompt as `sharing` sees it; `prefill` is None until all that is kept of it is there."""
        return Asked(
            id=self.request.id,
            group=f"{self.request.model.number} {self._partition}",
            prompt=self.request.prompt,
            done=prefill.done if prefill else self.known,
            begun=self._begun,
            drafts=self.drafts,
            whole=self.fixed,
            keeps=self._keeping.until if self._keeping else 0 if prefill else None,
        )

    @property
    def known(self) -> int:
        """Positions that a row which began now would get back."""
        return self._plan(disk=True).length(self._store.block)

    def start(self, batch: Batch) -> Restoring | Prefill:
        """Begins to fill the empty caches of the request's batch with what is kept. What comes of it in the end is the
        prefill of the rest, which keeps what it computes; its `begin` is how many positions were there."""
        self._begun = True
        layers = (*batch.cache, *batch.head_cache)
        if not (self._store.limit or self._writes or self._reads) or not all(map(can_cut, layers)):
            return Prefill(batch, self.request.prompt)
        self._reach = max((reach(layer) for layer in layers), default=0)
        return Restoring(self, batch, self.request.prompt, self._store.block)

    def begin(self, batch: Batch) -> Prefill:
        """The same at once, however long it takes."""
        started = self.start(batch)
        return started.finish() if isinstance(started, Restoring) else started

    def plan(self, *, disk: bool) -> tuple[int, int | None, bool]:
        """What there is now; see `restoring`."""
        self._found = self._plan(disk=disk)
        return self._found.count, self._found.tail, self._found.headed

    def fetch(self) -> Fetch:
        """Begins to get what was planned last."""
        return self._store.fetch(self._chain, self._found, disk=self._reads)

    def here(self, place: int) -> Block | None:
        """What memory has of a block that was planned."""
        return self._store.get(self._chain, place, self._length_at(place))

    def arrived(self, place: int, block: Block) -> None:
        """Keeps in memory what came from the disk."""
        if self._era == self._common.wiped:
            self._put_in_memory(self._chain, place, self._length_at(place), block)

    def spoilt(self, place: int, part: str) -> None:
        """Removes from the disk what nobody can make sense of."""
        self._store.discard(self._chain, place, part, self._length_at(place))

    def gathered(self, nbytes: int) -> None:
        """Counts what waits to be put in place."""
        self._common.gathered += nbytes

    def done(self, batch: Batch, length: int, *, headed: bool) -> Prefill:
        """The prefill of what is left behind `length` positions, which keeps what it computes."""
        self._explain(length, headed=headed)
        if self._writes:
            self._backlog.outgrow(self._chain, self.total)
            self._mend(length)
        keeping = Keeping(self._keep, self._store.block, batch, self.total, length, fixed=self.fixed)
        prefill = Prefill(batch, self.request.prompt, on_chunk=keeping)
        keeping.marks, self._keeping = prefill.marks, keeping
        return prefill

    def keep_turn(self, batch: Batch, row: int, *, quiet: bool) -> None:
        """Keeps what a row said, which has come to its end: its own prompt's beginning is kept already. What a
        reproducible row said is not: another partition has made it than would read it."""
        keeping, text = self._keeping, batch.rows[row].tokens[:-1]
        if keeping is None or keeping.until is not None or self.fixed or len(text) <= self.total:
            return
        chain = self._store.chain(facts_of(self.request.model, self._partition), text)
        for place, length, block in cut_turn(batch, row, keeping.next, self._store.block, quiet=quiet):
            self._keep_as(chain, place, length, block)

    def _mend(self, length: int) -> None:
        """Has what memory gave back, and the disk lacks, written there: it was dropped when it was new, went bad since,
        or comes from one that was not to be kept. Without it nothing that follows could be kept either. A tail that the
        text goes on behind is not needed."""
        if not self._store.writable:
            return
        size = self._store.block
        ends: list[int | None] = [None] * (length // size) + (
            [length % size] if length == self.total and length % size else []
        )
        for place, end in enumerate(ends):
            block = self._store.get(self._chain, place, end)
            if block is None:
                continue
            if not self._backlog.mend(group_of(self.request.model), self._chain, place, end, block):
                return

    def _length_at(self, place: int) -> int | None:
        assert self._found is not None
        return self._found.tail if place == self._found.count else None

    def _plan(self, *, disk: bool) -> Plan:
        return self._store.plan(self._chain, self._need(), disk=disk and self._reads)

    def _need(self) -> Any:
        return self._store.need(
            total=self.total,
            drafts=self.drafts,
            anew=not self.fixed,
            tails=not self.fixed,
            align=FIXED_CHUNK if self.fixed else 1,
            reach=self._reach,
        )

    def _explain(self, length: int, *, headed: bool) -> None:
        if self.drafts and length and not headed:
            miss = self._store.why_no_head(self._chain)
        else:
            miss = self._store.why(self._chain, self._need(), length)
        off = self._store.on_disk and not self._reads
        reason = OFF if miss.reason and off else miss.reason
        self.miss = reason if off or miss.at is None else f"{reason} at {miss.at}"
        self._store.note(length, reason)
        if reason:
            log.info("request %s has %d positions back, %s", self.request.id, length, self.miss)

    def _keep(self, place: int, length: int | None, block: Block) -> bool:
        return self._keep_as(self._chain, place, length, block)

    def _keep_as(self, chain: Any, place: int, length: int | None, block: Block) -> bool:
        """In memory, and on disk later; False where it is kept nowhere."""
        if self._era != self._common.wiped:
            return False
        kept = self._put_in_memory(chain, place, length, block)
        if self._writes:
            self._backlog.add(group_of(self.request.model), chain, place, length, block)
        return kept or self._writes

    def _put_in_memory(self, chain: Any, place: int, length: int | None, block: Block) -> bool:
        old = self._store.get(chain, place, length)
        if old is not None and not block.betters(old):
            return True
        return self._store.put(chain, place, block.joined(old), length)


def group_of(model: LoadedModel) -> str:
    """What blocks of a model go with."""
    return f"{model.number}"
