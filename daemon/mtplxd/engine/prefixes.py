"""Lets prompts that begin alike share what was computed for the beginning: what is kept of one, what another gets back.

What is kept are blocks: the body's and the head's part of each, and the taps at its end, with which a row that goes on
from there makes the pair whose token only it knows. Where blocks are kept, and how long, is the store's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from mtplxd.engine.batch import Batch
from mtplxd.engine.prefill import FIXED_CHUNK, Prefill
from mtplxd.engine.request import Request
from mtplxd.engine.row import Pending
from mtplxd.engine.sharing import Asked
from mtplxd.families.load import LoadedModel
from mtplxd.families.pieces import Piece, can_cut, cut, fill, has_state, state_bytes
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import compute_dtype, mx

STATE_EVERY = 256
"""Positions behind which another state is kept of a prompt though it is larger than all that is kept beside it."""
FREE, FIXED = "free", f"fixed {FIXED_CHUNK}"


@dataclass(frozen=True, slots=True)
class Block:
    """What is kept of a block. `head` and `taps` (at its last position, [1, 1, H] each) are there if its row drafts."""

    body: tuple[Piece, ...]
    head: tuple[Piece, ...] = ()
    taps: Taps = ()

    def serves(self, drafts: bool) -> bool:
        """Whether such a row can use it on its way further."""
        return bool(self.head) or not drafts

    def restores(self, drafts: bool) -> bool:
        """Whether such a row can go on behind it."""
        pieces = (*self.body, *(self.head if drafts else ()))
        return self.serves(drafts) and all(piece.whole for piece in pieces)

    def joined(self, old: Block | None) -> Block:
        """With what only `old`, which is of the same tokens, has."""
        if old is None:
            return self
        body = old.body if all(piece.whole for piece in old.body) else self.body
        with_head = self if self.head else old
        return Block(body, with_head.head, with_head.taps)

    @property
    def arrays(self) -> list[Any]:
        """All of its arrays."""
        return [*self.taps, *(array for piece in (*self.body, *self.head) for array in piece.arrays)]

    @property
    def nbytes(self) -> int:
        """Bytes it holds."""
        return sum(int(array.nbytes) for array in self.arrays)


class Found(Protocol):
    """Blocks from the first on, and `tails[i]`, the shorter ones behind i of them with their lengths."""

    @property
    def blocks(self) -> list[Block]: ...

    @property
    def tails(self) -> list[list[tuple[int, Block]]]: ...


class Store(Protocol):
    """Where blocks are kept, by names that only it makes. See `store.prefixes`."""

    @property
    def limit(self) -> int: ...

    @property
    def block(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def chain(self, facts: Mapping[str, str], tokens: Sequence[int]) -> Any: ...

    def walk(self, chain: Any, limit: int) -> Found: ...

    def get(self, chain: Any, place: int, length: int | None = None) -> Block | None: ...

    def put(self, chain: Any, place: int, payload: Block, length: int | None = None) -> bool: ...

    def use(self, chain: Any, count: int, tail: int | None = None) -> AbstractContextManager[None]: ...

    def note(self, positions: int) -> None: ...

    def shrink(self, limit: int) -> int: ...

    def drop(self, facts: Mapping[str, str]) -> None: ...


class Prefixes:
    """On the engine thread, as everything that has arrays. `block` is the store's positions of a block."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.block = store.block

    def seek(self, request: Request) -> Sought:
        """What there is for a request's prompt; restores nothing yet."""
        return Sought(self._store, request)

    @property
    def nbytes(self) -> int:
        """Bytes kept now."""
        return self._store.nbytes

    def give_up(self, nbytes: int) -> int:
        """Drops at least so many bytes where there are as many, the least recently used first; gives how many."""
        return self._store.shrink(max(0, self._store.nbytes - nbytes))

    def forget(self, model: LoadedModel) -> None:
        """Drops all blocks of a model that leaves memory."""
        for partition in (FREE, FIXED):
            self._store.drop(facts_of(model, partition))


class Sought:
    """One prompt and what is kept of it: asked for while it waits, used once it begins."""

    def __init__(self, store: Store, request: Request) -> None:
        self.request = request
        self.fixed = request.sampler.reproducible
        self.drafts = request.depth > 0 and request.model.head is not None
        self.total = len(request.prompt) - 1
        self._store = store
        self._partition = FIXED if self.fixed else FREE
        self._chain = store.chain(facts_of(request.model, self._partition), request.prompt)
        self._keeping: Keeping | None = None

    def asked(self, prefill: Prefill | None) -> Asked:
        """This prompt as `sharing` sees it; `prefill` is None until it begins."""
        return Asked(
            id=self.request.id,
            group=f"{self.request.model.number} {self._partition}",
            prompt=self.request.prompt,
            done=prefill.done if prefill else self.known,
            begun=prefill is not None,
            drafts=self.drafts,
            whole=self.fixed,
            keeps=self._keeping.until if self._keeping else 0 if prefill else None,
        )

    @property
    def known(self) -> int:
        """Positions that a row which began now would get back."""
        return self._length(*self._best(self._walk()))

    def begin(self, batch: Batch) -> Prefill:
        """Fills the empty caches of the request's batch with what is kept, and gives the prefill of the rest, which
        keeps what it computes. Its `begin` is how many positions were there."""
        if not self._store.limit or not all(can_cut(layer) for layer in (*batch.cache, *batch.head_cache)):
            return Prefill(batch, self.request.prompt)
        found = self._walk()
        count, tail = self._best(found)
        length = self._length(count, tail)
        self._store.note(length)
        if length:
            path = found.blocks[:count]
            if tail:
                path = [*path, next(block for of, block in found.tails[count] if of == tail)]
            with self._store.use(self._chain, count, tail):
                restore(batch, path, self.request.prompt[length])
        keeping = Keeping(self._store, self._chain, batch, self.total, length, tails=not self.fixed)
        prefill = Prefill(batch, self.request.prompt, on_chunk=keeping)
        keeping.marks, self._keeping = prefill.marks, keeping
        return prefill

    def _walk(self) -> Found:
        return self._store.walk(self._chain, self.total)

    def _best(self, found: Found) -> tuple[int, int | None]:
        """How many whole blocks, and the length of a tail behind them: the longest that a row can go on behind."""
        count = 0
        while count < len(found.blocks) and found.blocks[count].serves(self.drafts):
            count += 1
        for whole in range(count, -1, -1):
            for length, block in found.tails[whole] if not self.fixed else ():
                if block.restores(self.drafts):
                    return whole, length
            if whole and found.blocks[whole - 1].restores(self.drafts):
                return whole, None
        return 0, None

    def _length(self, count: int, tail: int | None) -> int:
        return count * self._store.block + (tail or 0)


class Keeping:
    """Keeps the blocks of one prompt as its prefill goes, until one finds no room: `until` is how far it kept then.

    `marks` are positions where others part from it.
    """

    def __init__(
        self, store: Store, chain: Any, batch: Batch, total: int, begin: int, *, tails: bool
    ) -> None:
        self.until: int | None = None
        self.marks: set[int] = set()
        self._store, self._chain, self._batch = store, chain, batch
        self._total, self._tails = total, tails
        self._next = begin // store.block
        self._state_at = begin
        self._stateful = any(has_state(layer) for layer in batch.cache)

    def __call__(self, begin: int, end: int, taps: Taps) -> None:
        """Hears of a chunk: cuts the blocks that it completes, and what is left at the end of the prompt."""
        size = self._store.block
        cuts: list[tuple[int, int | None, Block]] = []
        while self.until is None and (self._next + 1) * size <= end:
            cuts.append((self._next, None, self._cut(begin, end, (self._next + 1) * size, taps)))
            self._next += 1
        tail = end % size
        if self.until is None and end == self._total and tail and self._tails:
            cuts.append((self._next, tail, self._cut(begin, end, end, taps)))
        mx.eval([block.arrays for _, _, block in cuts])
        for place, length, block in cuts:
            if self.until is None and not self._put(place, length, block):
                self.until = place * size

    def _cut(self, begin: int, end: int, last: int, taps: Taps) -> Block:
        first = self._next * self._store.block
        with_state = not self._stateful or self._wants_state(end, last)
        body = tuple(cut(layer, first, last, with_state=with_state) for layer in self._batch.cache)
        if self._batch.head is None or self._batch.rows[0].plain:
            return Block(body)
        head = tuple(
            cut(layer, max(0, first - 1 - lag), max(0, last - 1 - lag))
            for lag, layer in enumerate(self._batch.head_cache)
        )
        place = last - 1 - begin
        return Block(body, head, tuple(mx.contiguous(tap[:, place : place + 1]) for tap in taps))

    def _wants_state(self, end: int, last: int) -> bool:
        """At the end of what is kept, where another prompt parts, and as often as states take no more than the rest."""
        if last != end:
            return False
        since, final = last - self._state_at, self._total // self._store.block * self._store.block
        states = sum(state_bytes(layer) for layer in self._batch.cache)
        slots = sum(layer.nbytes for layer in self._batch.cache) - states
        often = since >= STATE_EVERY or states * end <= slots * since
        if not often and last not in (self._total, final, *self.marks):
            return False
        self._state_at = last
        return True

    def _put(self, place: int, length: int | None, block: Block) -> bool:
        old = self._store.get(self._chain, place, length)
        drafts = bool(block.head)
        if old and old.serves(drafts) and old.restores(drafts) >= block.restores(drafts):
            return True
        return self._store.put(self._chain, place, block.joined(old), length)


def restore(batch: Batch, path: Sequence[Block], following: int) -> None:
    """Lets the empty caches of a batch of one row stand behind these blocks. `following` is the prompt's next token:
    with the taps at the end it makes the newest pair, which is pending."""
    [row] = batch.rows
    _fill_all(batch.cache, [block.body for block in path])
    if batch.head is not None and not row.plain:
        _fill_all(batch.head_cache, [block.head for block in path])
        row.pending = Pending([following], [path[-1].taps])
    mx.eval([layer.state for layer in (*batch.cache, *batch.head_cache)])


def facts_of(model: LoadedModel, partition: str) -> dict[str, str]:
    """What computes a prompt, as the store's names take it: the pack's files as they were when this model was loaded,
    and that load."""
    files = sorted((str(path), stamp) for path, stamp in model.pack.stamps.items()) if model.pack else []
    return {
        "body": f"load {model.number} of {files}",
        "head": f"{model.head_settings} to depth {model.depth_max}" if model.head else "none",
        "dtype": str(compute_dtype() or "as stored"),
        "backend": str(mx.default_device()),
        "partition": partition,
    }


def _fill_all(layers: Sequence[LayerCache], pieces: Sequence[tuple[Piece, ...]]) -> None:
    for place, layer in enumerate(layers):
        fill(layer, [of_block[place] for of_block in pieces])
