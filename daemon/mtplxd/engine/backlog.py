"""What is still to be written of blocks: their bytes are copied here, on the engine's thread, a little at a time.

Tails wait for a while: a turn that goes on behind one makes it needless. What waits is bounded in bytes, as memory
allows; what the disk then has no room for is not written, which is counted.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mtplxd.engine.blocks import BODY, HEAD, Block
from mtplxd.engine.sharing import common_length

MOST = 256 << 20
"""Bytes of arrays that wait to be copied; where more come, those before them are copied at once."""
FULL = "backlog_full"
QUIET_S = 3.0
"""How long a tail waits for a turn that goes on behind it."""
RETRY_S = 0.05
"""When to ask again where the disk takes nothing more for now."""


class Sink(Protocol):
    """Where bytes go. See `store.tiers`."""

    def takes(self, nbytes: int) -> bool: ...

    def lacks(self, chains: Any, place: int, part: str, grade: int, length: int | None = None) -> bool: ...

    def note_dropped(self, reason: str) -> None: ...

    def offer(
        self,
        chains: Any,
        place: int,
        part: str,
        meta: Mapping[str, Any],
        tensors: Any,
        grade: int,
        length: int | None = None,
    ) -> bool: ...


@dataclass(slots=True, eq=False)
class Pending:
    """A block to write. `group` is what it goes with when a model leaves memory; `due` on the clock's time."""

    group: str
    chains: Any
    place: int
    length: int | None
    block: Block
    due: float
    nbytes: int

    @property
    def text(self) -> list[int]:
        """All tokens up to its end."""
        chain = self.chains.whole
        return list(chain.tokens[: self.place * chain.block + (self.length or chain.block)])


class Backlog:
    """Blocks that wait for their bytes to be copied."""

    def __init__(self, sink: Sink, clock: Callable[[], float] = time.monotonic) -> None:
        self._sink, self._clock = sink, clock
        self._blocks: OrderedDict[bytes, Pending] = OrderedDict()
        self._tails: dict[bytes, Pending] = {}
        self._full_until = 0.0
        self._bound = MOST
        self.nbytes = 0

    def bound(self, nbytes: int) -> None:
        """At most so many bytes wait, and never more than ever; what waits already stays."""
        self._bound = nbytes

    def add(self, group: str, chains: Any, place: int, length: int | None, block: Block) -> None:
        """Takes a block whose arrays are evaluated."""
        nbytes = block.nbytes
        most = min(MOST, self._bound)
        while self.nbytes + nbytes > most and (first := self._next(hurry=True)) is not None:
            if not self._write(first):
                break
            self._drop(first)
        if self.nbytes + nbytes > most:
            self._sink.note_dropped(FULL)
            return
        pending = Pending(group, chains, place, length, block, self._clock(), nbytes)
        name = chains.whole.name(place, length)
        if length is None:
            old = self._blocks.get(name)  # keeps its place: behind those that it follows
            self._blocks[name] = pending
        else:
            pending.due += QUIET_S
            old = self._tails.pop(name, None)
            self._tails[name] = pending
        if old is not None:
            pending.block = block.joined(old.block)
            self.nbytes -= old.nbytes
        self.nbytes += nbytes

    def mend(self, group: str, chains: Any, place: int, length: int | None, block: Block) -> bool:
        """Takes a block that memory has, which nothing was computed for, if the disk lacks it; False where there is no
        room, so that those behind it have to wait as well."""
        waits = chains.whole.name(place, length) in (self._blocks if length is None else self._tails)
        if waits or not any(self._lacking(chains, place, length, block)):
            return True
        if self.nbytes + block.nbytes > min(MOST, self._bound):
            return False
        self.add(group, chains, place, length, block)
        return True

    def outgrow(self, chains: Any, total: int) -> None:
        """A text of these names is read, `total` positions long: tails that it goes on behind are needless."""
        for name, tail in [*self._tails.items()]:
            end = tail.place * chains.whole.block + (tail.length or 0)
            if end < total and chains.whole.name(tail.place, tail.length) == name:
                self._forget_tail(name)

    def work(self, seconds: float, *, hurry: bool = False) -> bool:
        """Copies blocks for about so long, one at least where one is due; tells whether there was one. In a `hurry`
        tails wait no longer."""
        until, done = self._clock() + seconds, False
        if not hurry and self._clock() < self._full_until:
            return False
        while (pending := self._next(hurry=hurry)) is not None:
            if not self._write(pending):
                self._full_until = self._clock() + RETRY_S
                return done
            self._drop(pending)
            done = True
            if self._clock() >= until:
                break
        return done

    def wait_s(self) -> float | None:
        """Seconds until there is something to do; None where nothing waits."""
        if not self._blocks and not self._tails:
            return None
        now = self._clock()
        due = [self._first.due] if self._blocks else []
        due += [tail.due for tail in self._tails.values()]
        return max(0.0, max(min(due), self._full_until) - now)

    def forget(self, tokens: Sequence[int], beyond: int) -> None:
        """What is of a text that begins with more than `beyond` of these tokens is not written any more; blocks that
        end before are."""
        own = list(tokens)
        for pending in [*self._blocks.values(), *self._tails.values()]:
            if common_length(pending.text, own, len(own)) > beyond:
                self._drop(pending)

    def clear(self) -> None:
        """Nothing of what waits is written any more."""
        self._blocks.clear()
        self._tails.clear()
        self.nbytes = 0

    def flush(self, seconds: float, group: str | None = None) -> bool:
        """Copies all that waits, of one group or of all; False where the time was not enough."""
        until = self._clock() + seconds
        while any(group in (None, one.group) for one in (*self._blocks.values(), *self._tails.values())):
            if not self.work(0.1, hurry=True):
                if self._clock() >= until:
                    return False
                time.sleep(RETRY_S)  # nobody decodes now: the writer's thread makes room
        return True

    def _next(self, *, hurry: bool) -> Pending | None:
        if self._blocks:
            return self._first
        now = self._clock()
        return next((tail for tail in self._tails.values() if hurry or tail.due <= now), None)

    def _write(self, pending: Pending) -> bool:
        """Gives a block's parts to the disk; False where it takes none for now."""
        block, at = pending.block, (pending.chains, pending.place)
        for part, grade in self._lacking(*at, pending.length, block):
            if not self._sink.takes(block.part_bytes(part)):
                return False
            meta, tensors = block.pack(part)
            self._sink.offer(*at, part, meta, tensors, grade, pending.length)
        return True

    def _lacking(
        self, chains: Any, place: int, length: int | None, block: Block
    ) -> Iterator[tuple[str, int]]:
        """The parts of a block that the disk lacks, and what each is good for."""
        for part, grade in zip((BODY, HEAD), block.grades, strict=True):
            if grade is not None and self._sink.lacks(chains, place, part, grade, length):
                yield part, grade

    @property
    def _first(self) -> Pending:
        return next(iter(self._blocks.values()))

    def _drop(self, pending: Pending) -> None:
        name = pending.chains.whole.name(pending.place, pending.length)
        if pending.length is None:
            self.nbytes -= self._blocks.pop(name).nbytes
        else:
            self._forget_tail(name)

    def _forget_tail(self, name: bytes) -> None:
        self.nbytes -= self._tails.pop(name).nbytes
