"""Decides which drafts of a real head are accepted, and checks after a round what the caches then hold.

The head runs as ever; only what its logits favour is replaced, so every accepted length occurs on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from mtplxd.engine.batch import Batch
from mtplxd.engine.prefill import CHUNK, prefill
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import commit, land, launch
from mtplxd.engine.row import Row
from mtplxd.families.caches import PairCache, StateCache, WindowCache
from mtplxd.families.heads.carrying import FirstCache
from mtplxd.families.load import LoadedModel
from mtplxd.families.protocols import Head, LayerCache
from mtplxd.platform.mlx import Array, mx
from support.ragged import counted


class SteeredHead:
    """A head whose next drafts are `planned`; without a plan they are its own."""

    draft_vocab: Array | None = None

    def __init__(self, head: Head) -> None:
        self._head = head
        self.depth_max = head.depth_max
        self.planned: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    def logits(self, state: Array) -> Array:
        found = self._head.logits(state)
        if not self.planned:
            return found
        return mx.where(mx.arange(found.shape[-1]) == self.planned.pop(0), 1e6, found)


def open_steered(model: LoadedModel, prompt: list[int], depth: int, chunk: int = CHUNK) -> Batch:
    """A greedy row with its prompt behind it, drafting with a head that can be steered."""
    assert model.head is not None
    head: Any = SteeredHead(model.head)
    cache = model.target.make_cache(1)
    row = Row(list(prompt), SamplerSettings(temperature=0.0), depth)
    batch = Batch(model.target, head, [row], cache, head.make_cache(1, cache))
    for _ in prefill(batch, prompt, chunk):
        pass
    return batch


def play(batch: Batch, depth: int, text: Sequence[int] = (), passing: int | None = None) -> int:
    """One whole round; gives how many drafts were accepted. With `passing` just so many are: `text` goes on as the
    committed tokens do."""
    head: Any = batch.head
    done = len(batch.rows[0].tokens)
    if passing is not None:
        true = list(text[done : done + depth])
        wrong = [(token + 1) % batch.target.vocab_size for token in true]
        head.planned = [*true[:passing], *wrong[passing:]]
    flight = launch(batch, counted([0], [batch.rows[0].round]), [depth])
    [landing] = land(batch, flight)
    assert (landing.drafted, landing.fault, landing.finite) == (depth, "", True)
    commit(batch, flight, [landing], [len(landing.tokens)])
    return landing.accepted


def assert_lengths(batch: Batch) -> None:
    """Every cache of the body holds the committed tokens but one; head layer j, with what is pending, j fewer."""
    [row] = batch.rows
    committed, pending = len(row.tokens), len(row.pending.tokens) if row.pending else 0
    assert {leaf.lengths[0] for layer in batch.cache for leaf in leaves(layer)} == {committed - 1}
    for j, layer in enumerate(batch.head_cache):
        for leaf in leaves(layer):
            assert leaf.lengths[0] == max(0, committed - 1 - j - pending - row.dropped_pairs)
    assert row.dropped_pairs == 0
    assert row.pending is None or row.pending.tokens == row.tokens[committed - pending :]


def assert_contents(batch: Batch, tolerance: float = 2e-5) -> None:
    """The caches of body and head hold what fresh ones do after one forward over the committed tokens."""
    [row] = batch.rows
    assert batch.head is not None
    fresh = batch.target.make_cache(1)
    fresh_head = batch.head.make_cache(1, fresh)
    _, taps = batch.target.run(mx.array([row.tokens[:-1]], mx.int32), fresh)
    held = len(row.tokens) - 1 - (len(row.pending.tokens) if row.pending else 0)
    if held:
        pairs = tuple(tap[:, :held] for tap in taps)
        batch.head.absorb(mx.array([row.tokens[1 : held + 1]], mx.int32), pairs, fresh_head)
    for ours, other in ((batch.cache, fresh), (batch.head_cache, fresh_head)):
        for layer, true in zip(ours, other, strict=True):
            assert_alike(contents(layer), contents(true), tolerance)
    if row.pending:
        assert_alike(row.pending.joined(), [tap[:, held:] for tap in taps], tolerance)


def assert_alike(found: Sequence[Array], true: Sequence[Array], tolerance: float) -> None:
    assert len(found) == len(true)
    for one, other in zip(found, true, strict=True):
        ours, theirs = np.array(one), np.array(other)
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max(initial=0) <= tolerance * (1 + np.abs(theirs).max(initial=0))


def contents(layer: LayerCache, row: int = 0) -> list[Array]:
    """What a row's next position may see of a cache: slots in the window, states, what a head carries on."""
    found: list[Array] = []
    if isinstance(layer, FirstCache) and layer.lengths[row]:
        found += layer.carries[row][layer.lengths[row]]
    for leaf in leaves(layer):
        if isinstance(leaf, StateCache):
            found += [array[row : row + 1] for array in leaf.state]
        elif (length := leaf.lengths[row]) and hasattr(leaf, "keys"):
            begin = max(0, length - leaf.window + 1) if isinstance(leaf, WindowCache) else 0
            at = leaf.begins[row] if isinstance(leaf, WindowCache) else 0
            here = slice(row, row + 1)
            found += [array[here, :, begin - at : length - at] for array in (leaf.keys, leaf.values)]
    return found


def leaves(layer: Any) -> Iterator[Any]:
    """The caches that a cache is made of."""
    if isinstance(layer, PairCache):
        for one in layer.caches:
            yield from leaves(one)
    elif isinstance(layer, FirstCache):
        yield from leaves(layer.inner)
    else:
        yield layer
