"""What the further layers of a head of several need of the text so far, kept beside layer 0's cache. Runs no layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import Array, mx

_KEPT = 2
"""Carries of the newest and the one before it: an absorbed forward may be taken back once."""


@dataclass(frozen=True, slots=True)
class Absorbed:
    """Forwards of all layers over `count` pairs a row, behind `begin[b]` of row b, some of which may be padding.

    `hidden` has, by further layer j, the hidden states [B, W, H] of its slots from begin[b] − j on, or from 0.
    """

    begin: list[int]
    count: int
    hidden: list[Array]

    def carry(self, row: int, pairs: int, *, of_target: bool) -> list[Array]:
        """For each further layer the hidden states [1, k, H] of its slots from n − j on, as far as n pairs tell them:
        up to n − j, or where they are the target's to n − 1."""
        found = []
        for j, hidden in enumerate(self.hidden, 1):
            place = max(0, self.begin[row] - j)
            first, last = max(0, pairs - j), pairs if of_target else max(0, pairs - j + 1)
            found.append(mx.contiguous(hidden[row : row + 1, first - place : last - place]))
        return found


class FirstCache:
    """Layer 0's cache, with what the further layers need of each row; all else is the cache's it stands for.

    `carries[b][n]` holds, behind n pairs of row b, for each further layer the hidden states of its slots from n − j on.
    How many of an absorbed forward's pairs count is only said by rolling back, where there are several rows.
    `drafts` are this round's tokens, each [B, 1], `outputs` what the newest of them made its layer's drafted slots.
    """

    def __init__(self, cache: LayerCache, *, of_target: bool) -> None:
        self.inner = cache
        self.carries: list[dict[int, list[Array]]] = [{} for _ in cache.lengths]
        self.drafts: list[Array] = []
        self.outputs: Array | None = None
        self._of_target = of_target
        self._absorbed: Absorbed | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def roll_back(self, lengths: Sequence[int]) -> None:
        """As the cache's; a round's drafts are over with it."""
        self.inner.roll_back(lengths)
        self._settle()
        self.carries = [
            {pairs: hidden for pairs, hidden in carried.items() if pairs <= length}
            for carried, length in zip(self.carries, lengths, strict=True)
        ]
        self.forget_drafts()

    def make_ready(self, other: FirstCache) -> None:
        """As the cache's; what is carried joins with its row."""
        self.inner.make_ready(other.inner)

    def is_ready(self, other: FirstCache) -> bool:
        """As the cache's."""
        return self.inner.is_ready(other.inner)

    def join(self, other: FirstCache) -> None:
        """As the cache's; what is carried joins with its row."""
        self._settle()
        other._settle()
        self.inner.join(other.inner)
        self.carries = [*self.carries, *other.carries]
        self.forget_drafts()

    def leave(self, row: int) -> None:
        """As the cache's; what is carried leaves with its row."""
        self._settle()
        self.inner.leave(row)
        self.carries[row] = self.carries[-1]
        self.carries.pop()
        self.forget_drafts()

    def copy_row(self, row: int) -> FirstCache:
        """As the cache's, with what is carried of that row."""
        self._settle()
        copy = FirstCache(self.inner.copy_row(row), of_target=self._of_target)
        copy.carries = [dict(self.carries[row])]
        return copy

    def forget_drafts(self) -> None:
        """A new round drafts from the beginning."""
        self.drafts, self.outputs = [], None

    def carried(self, layers: int) -> list[list[Array | None]]:
        """By row and layer, what is carried behind the pairs held now, None behind none. Raises ValueError for gaps."""
        self._settle()
        return [self._behind(row, pairs, layers) for row, pairs in enumerate(self.lengths)]

    def keep(self, absorbed: Absorbed) -> None:
        """Takes what a forward of all layers left. Of one row all its pairs are true."""
        self._absorbed = absorbed
        if len(self.carries) == 1:
            self._settle()

    @property
    def state(self) -> list[Array]:
        """The arrays to evaluate."""
        return [*self.inner.state, *self._carried]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.inner.nbytes + sum(array.nbytes for array in self._carried))

    @property
    def _carried(self) -> list[Array]:
        waiting = self._absorbed.hidden if self._absorbed else []
        return [*(a for carries in self.carries for hidden in carries.values() for a in hidden), *waiting]

    def _behind(self, row: int, pairs: int, layers: int) -> list[Array | None]:
        if pairs == 0:
            return [None] * layers
        if pairs not in self.carries[row]:
            raise ValueError(f"a head of several layers cannot go on behind {pairs} pairs")
        return [None, *self.carries[row][pairs]]

    def _settle(self) -> None:
        """Keeps of the last absorbed forward what each row needs behind the pairs it holds now."""
        absorbed, self._absorbed = self._absorbed, None
        if absorbed is None:
            return
        for row, pairs in enumerate(self.lengths):
            if absorbed.begin[row] < pairs <= absorbed.begin[row] + absorbed.count:
                carries = self.carries[row]
                carries.pop(pairs, None)
                carries[pairs] = absorbed.carry(row, pairs, of_target=self._of_target)
                self.carries[row] = dict(list(carries.items())[-_KEPT:])


def side_by_side(rows: Sequence[Array | None]) -> Array:
    """Rows [1, n, …] of unequal length, padded with zeros to the longest; none is one without positions."""
    like = next(row for row in rows if row is not None)
    if len(rows) == 1:
        return like
    width = max(row.shape[1] for row in rows if row is not None)
    return mx.concatenate([_padded(like[:, :0] if row is None else row, width) for row in rows])


def _padded(row: Array, width: int) -> Array:
    missing = width - row.shape[1]
    return mx.pad(row, [(0, 0), (0, missing), *[(0, 0)] * (row.ndim - 2)]) if missing else row
