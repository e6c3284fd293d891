"""Batches of rows of unequal length, rounds with forced acceptance, and the comparison of caches with fresh ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from mtplxd.engine.batch import Batch
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import Flight, commit, land, launch
from mtplxd.engine.row import Pending, Row
from mtplxd.engine.uniforms import RoundUniforms, UniformSupply
from mtplxd.families.caches import RowCache
from mtplxd.families.protocols import Head, Target
from mtplxd.platform.mlx import Array, mx


@dataclass
class ForcedSource:
    """Lets the first `passing[b]` drafts of a row pass whatever their chances, and fails the next; draws at random."""

    passing: Sequence[int]
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def draft(self, _step: int, law: Array) -> Array:
        return mx.array(self.rng.random(law.shape[0]), law.dtype)

    def accept(self, chances: Array) -> Array:
        passes = np.arange(chances.shape[1]) < np.array(self.passing)[:, None]
        return mx.array(np.where(passes, -1.0, 2.0), chances.dtype)

    def final(self, law: Array) -> Array:
        return mx.array(self.rng.random(law.shape[0]), law.dtype)

    def races(self, begin: int, count: int, size: int) -> Array:
        raise AssertionError(f"a race of {count} positions from {begin} over {size} ids is forced by nothing")

    def of(self, places: Sequence[int]) -> ForcedSource:
        return ForcedSource([self.passing[place] for place in places], self.rng)


def counted(
    seeds: Sequence[int], rounds: Sequence[int], positions: Sequence[int] | None = None
) -> RoundUniforms:
    """The real source of rows with these seeds, at these rounds and next positions."""
    return RoundUniforms([UniformSupply(seed) for seed in seeds], rounds, positions or [0] * len(seeds))


def open_ragged(
    target: Target, head: Head, prompts: Sequence[Sequence[int]], sampler: SamplerSettings, pending: int = 1
) -> Batch:
    """A batch whose caches hold prompts of any lengths, with up to `pending` pairs a row not yet absorbed."""
    width = max(len(prompt) for prompt in prompts)
    padded = mx.array([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts], mx.int32)
    cache = target.make_cache(len(prompts))
    head_cache = head.make_cache(len(prompts), cache)
    rows = [Row(list(prompt), sampler, 0) for prompt in prompts]
    if width > 1:
        _, taps = target.run(padded[:, :-1], cache)
        head.absorb(padded[:, 1:], taps, head_cache)
        for b, row in enumerate(rows):
            last = len(row.tokens) - 1
            begin = max(last - pending, 0)
            if last:
                kept = tuple(tap[b : b + 1, begin:last] for tap in taps)
                row.pending = Pending(row.tokens[begin + 1 :], [kept])
        for layer in cache:
            layer.roll_back([len(prompt) - 1 for prompt in prompts])
        for layer in head_cache:
            layer.roll_back([max(len(prompt) - 1 - pending, 0) for prompt in prompts])
    return Batch(target, head, rows, cache, head_cache)


def play_round(batch: Batch, lengths: Sequence[int], passing: Sequence[int], seed: int = 0) -> Flight:
    """One whole round that keeps everything."""
    flight = launch(batch, ForcedSource(passing, np.random.default_rng(seed)), lengths)
    landings = land(batch, flight)
    commit(batch, flight, landings, [len(landing.tokens) for landing in landings])
    return flight


def assert_settled(batch: Batch, tolerance: float = 5e-6) -> None:
    """The invariant after a round: lengths add up, and both caches equal those of a fresh run over the text."""
    for b, row in enumerate(batch.rows):
        count = len(row.tokens) - 1
        absorbed = batch.head_cache[0].lengths[b]
        pending = row.pending.tokens if row.pending else []
        assert {layer.lengths[b] for layer in batch.cache} == {count}
        assert {layer.lengths[b] for layer in batch.head_cache} == {absorbed}
        if row.plain:
            assert (absorbed, pending) == (0, [])
        else:
            assert absorbed + len(pending) + row.dropped_pairs == count
        assert pending == row.tokens[len(row.tokens) - len(pending) :]
        if not count:
            continue
        fresh = batch.target.make_cache(1)
        fresh_head = batch.head.make_cache(1, fresh) if batch.head else []
        _, taps = batch.target.run(mx.array([row.tokens[:-1]], mx.int32), fresh)
        assert_same_slots(batch.cache, b, fresh, count, tolerance)
        if absorbed:
            begin = row.dropped_pairs
            pairs = tuple(tap[:, begin : begin + absorbed] for tap in taps)
            batch.head.absorb(
                mx.array([row.tokens[begin + 1 : begin + absorbed + 1]], mx.int32), pairs, fresh_head
            )
            assert_same_slots(batch.head_cache, b, fresh_head, absorbed, tolerance)
        if row.pending:
            for held, true in zip(row.pending.joined(), taps, strict=True):
                assert (
                    np.abs(np.array(held) - np.array(true[:, count - len(pending) :])).max() <= tolerance * 4
                )


def assert_same_slots(
    cache: Sequence[RowCache], b: int, fresh: Sequence[RowCache], count: int, tolerance: float
) -> None:
    for layer, other in zip(cache, fresh, strict=True):
        for held, true in zip(layer.state, other.state, strict=True):
            assert np.abs(np.array(held[b, :, :count]) - np.array(true[0, :, :count])).max() <= tolerance


def poison(cache: Sequence[RowCache], value: float) -> None:
    """Overwrites every position behind each row's length."""
    for layer in cache:
        if layer.keys is None:
            continue
        spare = [0] * (layer.keys.shape[0] - len(layer.lengths))
        behind = mx.arange(layer.keys.shape[2]) >= mx.array([*layer.lengths, *spare])[:, None]
        spoil = behind[:, None, :, None]
        layer.keys = mx.where(spoil, mx.array(value, layer.keys.dtype), layer.keys)
        layer.values = mx.where(spoil, mx.array(value, layer.values.dtype), layer.values)
