"""Draws batches of whole rows from shards; a batch is a function of seed and step, so a resumed run sees the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.forge.losses import Aim, aim_at
from mtplxd.forge.shards import ASKED, FORCED, GENERATED, Shard, read_shard

ORIGIN_WEIGHTS = {FORCED: 0.0, GENERATED: 1.0, ASKED: 0.3}
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """B rows cut to P pairs: tokens [B, P + depths] int32, taps [B, P, T, H] float16, and for each depth the flat
    places [N] in [B, P] that count, with what the target says there. Beyond the first depth only chains that begin at
    the C pairs of `chains` are followed, and places are in [B, C]."""

    tokens: Ints
    taps: npt.NDArray[np.float16]
    places: list[Ints]
    aims: list[Aim]
    chains: slice


class RowSource:
    """All rows of some shards, shuffled anew each epoch. Of the places that count at a depth, at most `most` are drawn
    for a batch; 0 takes all. What lengthens a short row among longer ones does not count, and nothing of it does.

    Shards are open only while a batch is drawn from them: there may be more than a process may have files open."""

    def __init__(
        self, folder: Path, shards: list[int], draft_index: Ints, top_p: float, seed: int, most: int = 0
    ) -> None:
        self._most, self._folder = most, folder
        self._where = [
            (index, row) for index in shards for row in range(len(read_shard(folder, index).tokens))
        ]
        self._draft_index, self._top_p, self._seed = draft_index, top_p, seed
        self._weights = np.array(
            [ORIGIN_WEIGHTS[origin] for origin in (FORCED, GENERATED, ASKED)], np.float32
        )

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._where)

    def batch(self, step: int, rows: int, depths: int, share: int = 1) -> Batch:
        """The batch of `step`: `rows` rows of the epoch's order, chains behind one pair in `share`."""
        return self.gather(self._rows_of(step, rows), depths, step, share)

    def gather(self, wanted: list[int], depths: int, step: int = 0, share: int = 1) -> Batch:
        """The given rows as a batch; `step` says which places, and which neighbouring chains, are drawn where not all
        are."""
        picked = self._pick([self._where[index] for index in wanted])
        tokens = _stack(picked, "tokens").astype(np.int32)
        origin = _stack(picked, "origin")
        pairs = tokens.shape[1] - depths
        chains = self._neighbours(pairs, share, step)
        places, aims = [], []
        for depth in range(1, depths + 1):
            weights = self._weights[origin[:, depth + 1 : depth + 1 + pairs]]
            weights = np.pad(weights, ((0, 0), (0, pairs - weights.shape[1])))
            followed = chains if depth > 1 else slice(0, pairs)
            weights = weights[:, followed]
            chosen = self._some(np.flatnonzero(weights.reshape(-1)), step, depth)
            row, place = np.divmod(chosen, weights.shape[1])
            place = place + followed.start + depth
            aims.append(
                aim_at(
                    _stack(picked, "top_ids")[row, place],
                    _stack(picked, "top_logprobs")[row, place],
                    _stack(picked, "logsumexp")[row, place],
                    self._draft_index,
                    weights.reshape(-1)[chosen],
                    self._top_p,
                )
            )
            places.append(chosen.astype(np.int32))
        return Batch(tokens, _stack(picked, "taps")[:, :pairs], places, aims, chains)

    def _pick(self, places: list[tuple[int, int]]) -> list[tuple[Shard, int]]:
        opened = {index: read_shard(self._folder, index) for index, _ in places}
        return [(opened[index], row) for index, row in places]

    def _neighbours(self, pairs: int, share: int, step: int) -> slice:
        """One in `share` of the pairs, next to each other; every place for them is as likely."""
        count = -(-pairs // share)
        begin = int(np.random.default_rng([self._seed, step]).integers(pairs - count + 1)) if share > 1 else 0
        return slice(begin, begin + count)

    def _some(self, places: npt.NDArray[np.int64], step: int, depth: int) -> npt.NDArray[np.int64]:
        if not self._most or len(places) <= self._most:
            return places
        rng = np.random.default_rng([self._seed, step, depth])
        return np.sort(rng.choice(places, self._most, replace=False))

    def _rows_of(self, step: int, rows: int) -> list[int]:
        wanted = range(step * rows, (step + 1) * rows)
        return [int(self._order(index // self.rows)[index % self.rows]) for index in wanted]

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        if getattr(self, "_epoch", None) != epoch:
            self._epoch = epoch
            self._permutation = np.random.default_rng([self._seed, epoch]).permutation(self.rows)
        return self._permutation


def _stack(picked: list[tuple[Shard, int]], field: str) -> npt.NDArray[Any]:
    """The rows of a field, the shorter ones with zeros behind them: tokens that nobody wrote, FORCED."""
    rows = [getattr(shard, field)[row] for shard, row in picked]
    stacked = np.zeros((len(rows), max(map(len, rows)), *rows[0].shape[1:]), rows[0].dtype)
    for to, row in zip(stacked, rows, strict=True):
        to[: len(row)] = row
    return stacked


def draft_index_of(draft_vocab: Ints, vocab_size: int) -> Ints:
    """Sorted token ids [D] to the place of every id [V], -1 where it is not among them."""
    index = np.full(vocab_size, -1, np.int32)
    index[draft_vocab] = np.arange(len(draft_vocab), dtype=np.int32)
    return index
