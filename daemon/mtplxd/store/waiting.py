"""What waits to be written: blocks in the order they were offered, bounded in bytes. Writes nothing, takes no lock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from mtplxd.store.blocks import Offered
from mtplxd.store.keys import digest

MOST = 8192
"""Blocks that wait at most, however small."""


def supersedes(offered: Offered, tail: bytes, length: int, grade: int) -> bool:
    """Whether a block says all that a tail of that name behind the same block does, and is good for as much."""
    shorter = length < len(offered.tokens) and grade <= offered.grade
    return shorter and digest(offered.parent, offered.tokens[:length]) == tail


class Waiting:
    """At most `limit` bytes of tensors, those being written included; one larger block still finds room alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        self._taken: dict[bytes, Offered] = {}
        self._queue: OrderedDict[bytes, Offered] = OrderedDict()
        self._tails: dict[bytes, set[bytes]] = {}

    def __len__(self) -> int:
        return len(self._queue) + len(self._taken)

    def get(self, name: bytes) -> Offered | None:
        """The block of that name, being written or not."""
        return self._queue.get(name) or self._taken.get(name)

    def names(self) -> list[bytes]:
        """Names of all that waits or is being written."""
        return [*self._taken, *self._queue]

    def room(self) -> int:
        """Bytes that can be put without being refused."""
        return max(0, self.limit - self.nbytes) if len(self) < MOST else 0

    def has_room(self, nbytes: int) -> bool:
        """Whether a block of so many bytes can wait."""
        return len(self) == 0 or nbytes <= self.room()

    def put(self, offered: Offered) -> list[Offered]:
        """Lets a block wait, in place of one of that name; gives the tails that need not be written any more."""
        self.drop([offered.name])
        tails = [self._queue[name] for name in self._tails.get(offered.parent, ())]
        self._queue[offered.name] = offered
        self.nbytes += offered.content.nbytes
        if offered.tail:
            self._tails.setdefault(offered.parent, set()).add(offered.name)
        return self.drop(
            tail.name for tail in tails if supersedes(offered, tail.name, len(tail.tokens), tail.grade)
        )

    def take(self, nbytes: int, count: int) -> list[Offered]:
        """The next blocks, about so many bytes and at most so many, to be written; `finish` ends that."""
        batch: list[Offered] = []
        while self._queue and len(batch) < count and (not batch or nbytes > 0):
            offered = self._pop(next(iter(self._queue)))
            self._taken[offered.name] = offered
            batch.append(offered)
            nbytes -= offered.content.nbytes
        return batch

    def finish(self) -> None:
        """What was taken is written or dropped."""
        self.nbytes -= sum(offered.content.nbytes for offered in self._taken.values())
        self._taken.clear()

    def drop(self, names: Iterable[bytes] | None = None) -> list[Offered]:
        """Takes out of these, or of all, those nobody writes yet, and gives them."""
        asked = [*self._queue] if names is None else [*names]
        out = [self._pop(name) for name in asked if name in self._queue]
        self.nbytes -= sum(offered.content.nbytes for offered in out)
        return out

    def _pop(self, name: bytes) -> Offered:
        offered = self._queue.pop(name)
        if offered.tail:
            tails = self._tails[offered.parent]
            tails.discard(name)
            if not tails:
                del self._tails[offered.parent]
        return offered
