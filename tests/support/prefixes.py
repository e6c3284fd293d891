"""Prompts that begin alike, read through one store, and the same prompts read alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.fixed_shape import room_in_block
from mtplxd.engine.prefill import FIXED_CHUNK, Prefill
from mtplxd.engine.prefixes import Prefixes
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.engine.round import commit, land, launch
from mtplxd.families.load import LoadedModel
from mtplxd.families.protocols import Taps
from mtplxd.platform.mlx import Array, mx
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.tiers import Tiers
from support.ragged import counted
from support.steering import contents
from support.table_model import TableHead, TableTarget

BLOCK = FIXED_CHUNK
PLENTY = 1 << 30
_ids = count()


class Counting:
    """A target that counts the positions it runs, by forward."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.vocab_size = target.vocab_size
        self.counts: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def run(self, tokens: Array, cache: list[Any]) -> tuple[Array, Taps]:
        self.counts.append(tokens.shape[1])
        found: tuple[Array, Taps] = self._target.run(tokens, cache)
        return found


def model_of(target: Any, head: Any, depth_max: int = 8) -> LoadedModel:
    """A loaded model of these two, with nothing to read or write texts with."""
    nothing: Any = None
    return LoadedModel(
        "rig", nothing, target, head, nothing, 0, 0, depth_max, 4096, frozenset(), shape_stable=True
    )


def table_model(vocab: int = 5) -> LoadedModel:
    """A table model whose caches hold token ids and pair ids, counted."""
    target = TableTarget(vocab)
    return model_of(Counting(target), TableHead(target))


def ask(model: LoadedModel, prompt: Sequence[int], *, depth: int = 2, reproducible: bool = False) -> Request:
    """A greedy request."""
    sampler = SamplerSettings(temperature=0.0, reproducible=reproducible)
    return Request(f"ask-{next(_ids)}", "test", model, list(prompt), sampler, 16, depth=depth)


def prefixes(limit: int = PLENTY) -> tuple[Prefixes, PrefixIndex[Any]]:
    """Sharing over an index of its own."""
    index: PrefixIndex[Any] = PrefixIndex(limit)
    return Prefixes(Tiers(index)), index


def finish(prefill: Prefill, limit: int = BLOCK) -> Prefill:
    """Reads all that is left."""
    while not prefill.finished:
        prefill.step(limit)
    return prefill


def read(shared: Prefixes, request: Request, limit: int = BLOCK) -> tuple[Batch, Prefill]:
    """A request's prompt, read with what is kept and kept for others."""
    batch, sought = open_batch(request), shared.seek(request)
    known = sought.known
    prefill = sought.begin(batch)
    assert prefill.begin == prefill.done == known
    return batch, finish(prefill, limit)


def read_alone(request: Request, limit: int = BLOCK) -> Batch:
    """The same prompt read by itself, cut at the same places."""
    batch = open_batch(request)
    finish(Prefill(batch, request.prompt, FIXED_CHUNK if request.sampler.reproducible else None), limit)
    return batch


def differences(one: Batch, other: Batch) -> list[str]:
    """What a next round could see differently, bit by bit."""
    found = []
    for kind, ours, theirs in (("body", one.cache, other.cache), ("head", one.head_cache, other.head_cache)):
        for place, (layer, true) in enumerate(zip(ours, theirs, strict=True)):
            where = f"{kind} {place}"
            if layer.lengths != true.lengths:
                found.append(f"{where}: {layer.lengths} instead of {true.lengths}")
            elif not _same(contents(layer), contents(true)):
                found.append(f"{where}: other contents")
    [mine], [expected] = ([row.pending for row in batch.rows] for batch in (one, other))
    if (mine is None) != (expected is None):
        found.append("pending: one has none")
    elif mine and expected:
        if mine.tokens != expected.tokens:
            found.append(f"pending: {mine.tokens} instead of {expected.tokens}")
        if not _same(mine.joined(), expected.joined()):
            found.append("pending: other taps")
    return found


def held_arrays(index: PrefixIndex[Any]) -> list[np.ndarray]:
    """Copies of all arrays of an index, in the order of their names."""
    entries = index._entries
    return [np.array(array) for name in sorted(entries) for array in entries[name].payload.arrays]


def tokens_of(count: int, seed: int, vocab: int = 5) -> list[int]:
    """So many tokens."""
    rng = np.random.default_rng(seed)
    return [int(token) for token in rng.integers(0, vocab, count)]


def rounds(batch: Batch, depth: int, count: int = 4) -> list[int]:
    """What a row goes on to say in so many rounds."""
    [row] = batch.rows
    begin = len(row.tokens)
    for _ in range(count):
        length = depth if batch.width is None else min(depth, room_in_block(len(row.tokens)))
        flight = launch(batch, counted([0], [0]), [length])
        commit(batch, flight, landed := land(batch, flight), [len(landed[0].tokens)])
    return row.tokens[begin:]


def depth_of(model: LoadedModel) -> int:
    """How deep rows of it draft here."""
    return min(2, model.depth_max)


def some(count: int, seed: int) -> list[int]:
    """So many ids of a vocabulary of 300."""
    return [int(token) for token in np.random.default_rng(seed).integers(3, 290, count)]


def _same(ours: Sequence[Array], theirs: Sequence[Array]) -> bool:
    if len(ours) != len(theirs):
        return False
    return all(mx.array_equal(one, other).item() for one, other in zip(ours, theirs, strict=True))
