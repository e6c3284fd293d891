"""A model small enough to enumerate: laws are looked up in tables by a hash of the whole prefix.

`TableTarget` and `TableHead` speak the engine's protocols over real `RowCache`s, whose slots hold token ids (the
target's) and pair ids (the head's) instead of keys and values, so that a test can read what a cache remembers. All
arithmetic up to the tables is on integers: a prefix has the same logits in every batch, shape and dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
from mtplxd.families.caches import RowCache
from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import Array, mx

STATES = 4093
POSITIONS = 1200
CODES = 8191


@lru_cache(maxsize=64)
def _target_numbers(vocab: int, seed: int, spread: float) -> tuple[list[list[int]], np.ndarray]:
    """Codes and table of a target, which nobody changes: drawing them takes longer than most tests."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, STATES, (POSITIONS, vocab)).tolist()
    return codes, np.round(rng.normal(0.0, spread, (STATES, vocab)) * 4) / 4


@lru_cache(maxsize=64)
def _head_numbers(size: int, seed: int, spread: float, gaps: float) -> tuple[list[int], np.ndarray]:
    """The same of a head."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, STATES, CODES).tolist()
    table = np.round(rng.normal(0.0, spread, (STATES, size)) * 4) / 4
    table[rng.random(STATES) < gaps] = np.nan
    return codes, table


class TableTarget:
    """Next-token logits [V] of a prefix: row (sum of a code per position and token) mod STATES of a table.

    Logits are multiples of a quarter, so that equal ones are common. `poison` makes them NaN after a given prefix.
    """

    def __init__(self, vocab: int = 5, dtype: object = None, seed: int = 0, spread: float = 1.5) -> None:
        self.vocab_size = vocab
        self.codes, table = _target_numbers(vocab, seed, spread)
        self.table = table.copy()
        self._codes = mx.array(self.codes, mx.int32).reshape(-1)
        self.dtype = dtype or mx.float32
        self._table = mx.array(self.table, self.dtype)

    def make_cache(self, rows: int) -> list[LayerCache]:
        return [RowCache(rows)]

    def run(self, tokens: Array, cache: list[LayerCache]) -> tuple[Array, tuple[Array, ...]]:
        held, own = write_slots(cache[0], tokens)
        places = mx.arange(held.shape[1]) * self.vocab_size + held
        sums = mx.cumsum(self._codes[places], axis=1)
        hidden = (mx.take_along_axis(sums, own, axis=1) % STATES)[..., None].astype(mx.float32)
        return hidden, (hidden,)

    def logits(self, hidden: Array) -> Array:
        return self._table[hidden[..., 0].astype(mx.int32)]

    def state_after(self, prefix: Sequence[int]) -> int:
        """What `run` gives for the last token of `prefix`, in plain Python."""
        return sum(self.codes[place][token] for place, token in enumerate(prefix)) % STATES

    def logits_after(self, prefix: Sequence[int]) -> np.ndarray:
        """Logits [V] of what follows `prefix`, float64."""
        return self.table[self.state_after(prefix)]

    def poison(self, prefix: Sequence[int]) -> None:
        """From now on the logits after `prefix` are NaN."""
        self.table[self.state_after(prefix)] = np.nan
        self._table = mx.array(self.table, self.dtype)


class TableHead:
    """Draft logits [D] from all pairs in the head's slots; other laws than the target's, and none of its states.

    After a share `gaps` of all histories they are NaN: how many drafts count then depends on what was drafted.
    """

    depth_max = 8

    def __init__(
        self,
        target: TableTarget,
        vocab: Sequence[int] | None = None,
        seed: int = 1,
        spread: float = 1.2,
        gaps: float = 0.0,
    ) -> None:
        self.target = target
        self.ids = list(range(target.vocab_size)) if vocab is None else list(vocab)
        self.draft_vocab = None if vocab is None else mx.array(self.ids, mx.int32)
        self.codes, table = _head_numbers(len(self.ids), seed, spread, gaps)
        self.table = table.copy()
        self._codes = mx.array(self.codes, mx.int32)
        self._table = mx.array(self.table, target.dtype)

    def make_cache(self, rows: int, _body_cache: Sequence[LayerCache]) -> list[LayerCache]:
        return [RowCache(rows)]

    def absorb(self, tokens: Array, taps: tuple[Array, ...], cache: list[LayerCache]) -> Array:
        (tap,) = taps
        return self._run(tap[..., 0].astype(mx.int32) * self.target.vocab_size + tokens, cache[0])

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:
        return self._run(
            (STATES + state[..., 0].astype(mx.int32)) * self.target.vocab_size + tokens, cache[0]
        )

    def logits(self, state: Array) -> Array:
        return self._table[state[..., 0].astype(mx.int32)]

    def pairs_of(self, tokens: Sequence[int]) -> list[int]:
        """Ids of the true pairs of a committed text, in plain Python."""
        sums = accumulate(self.target.codes[place][token] for place, token in enumerate(tokens))
        return [
            total % STATES * self.target.vocab_size + token
            for total, token in zip(sums, tokens[1:], strict=False)
        ]

    def state_after(self, pairs: Sequence[int]) -> int:
        """z after these pairs, in plain Python."""
        return sum(self.codes[pair % CODES] * (place % 97 + 1) for place, pair in enumerate(pairs)) % STATES

    def extended(self, pairs: Sequence[int], token: int) -> list[int]:
        """The pairs with a recursion pair of the newest z and a draft."""
        return [*pairs, (STATES + self.state_after(pairs)) * self.target.vocab_size + token]

    def _run(self, pairs: Array, cache: LayerCache) -> Array:
        held, own = write_slots(cache, pairs)
        weights = mx.arange(held.shape[1]) % 97 + 1
        sums = mx.cumsum(self._codes[held % CODES] * weights % STATES, axis=1)
        return (mx.take_along_axis(sums, own, axis=1) % STATES)[..., None].astype(mx.float32)


def write_slots(cache: LayerCache, ids: Array) -> tuple[Array, Array]:
    """Writes ids [B, L]; gives all slots [B, S] as int32, 0 where a row may not look, and the places written [B, L]."""
    begin = mx.array(cache.lengths, mx.int32)
    own = begin[:, None] + mx.arange(ids.shape[1])
    slots = ids.astype(mx.float32)[:, None, :, None]
    keys, values = cache.update_and_fetch(slots, -slots)
    seen = mx.arange(keys.shape[2]) <= own[:, -1:]
    agreed = mx.where(keys[:, 0, :, 0] == -values[:, 0, :, 0], keys[:, 0, :, 0], -mx.inf)
    return mx.where(seen, agreed, 0).astype(mx.int32), own


def read_slots(cache: LayerCache, row: int = 0) -> list[int]:
    """What a row of a table model's cache remembers."""
    if cache.keys is None:
        return []
    return [int(slot) for slot in np.array(cache.keys[row, 0, : cache.lengths[row], 0])]
