"""Each kind of cache, rolled back by any length at any place, answers the next forward as a fresh stock cache does.

The fresh one is mlx-lm's own, fed the committed positions only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlx_lm.models.cache import CacheList, KVCache, RotatingKVCache
from mtplxd.families.caches import PairCache, RowCache, WindowCache, counterpart
from mtplxd.families.load import load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.cache_streams import Stream, attend
from support.families import write_checkpoint

WINDOW = 8
TOLERANCE = 1e-6

Make = Callable[[], Any]
KINDS: dict[str, Make] = {
    "KVCache": KVCache,
    "RotatingKVCache": lambda: RotatingKVCache(WINDOW),
    "CacheList": lambda: CacheList(KVCache(), RotatingKVCache(WINDOW)),
}


def forward(cache: Any, stream: Stream, begin: int, count: int) -> np.ndarray:
    """What all parts of a layer's cache give for positions begin … begin + count − 1."""
    parts = cache.caches if hasattr(cache, "caches") else [cache]
    return np.stack([np.array(attend(part, stream.at(begin, count))) for part in parts])


@pytest.mark.parametrize("following", [1, 2, 5])
@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("held", [0, 1, 3, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW + 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rolled_back_cache_goes_on_like_a_fresh_one(
    kind: str, held: int, kept: int, following: int
) -> None:
    stream, stock = Stream(), KINDS[kind]()
    ours = counterpart(KINDS[kind](), 1)
    for cache in (ours, stock):
        if held:
            forward(cache, stream, 0, held)
    for _ in range(3):
        forward(ours, Stream(7), held, 4)  # drafts: other numbers than the text's
        ours.roll_back([held])
    forward(ours, stream, held, 4)
    ours.roll_back([held + kept])
    if kept:
        forward(stock, stream, held, kept)
    assert ours.lengths == [held + kept]
    for _ in range(2):
        found, expected = (forward(cache, stream, held + kept, following) for cache in (ours, stock))
        assert np.abs(found - expected).max() <= TOLERANCE
        held += following


@pytest.mark.parametrize("kind", KINDS)
def test_many_rounds_of_any_length_and_acceptance_never_drift(kind: str) -> None:
    rng, stream = np.random.default_rng(3), Stream()
    ours, length = counterpart(KINDS[kind](), 1), 0
    texts: list[tuple[int, int]] = []
    for _ in range(120):
        count = int(rng.integers(1, 7))
        found = forward(ours, stream, length, count)
        kept = int(rng.integers(1, count + 1))
        ours.roll_back([length + kept])
        texts.append((length, kept))
        stock = KINDS[kind]()
        if length:
            forward(stock, stream, 0, length)
        assert np.abs(found - forward(stock, stream, length, count)).max() <= TOLERANCE
        length += kept
    assert length > 20 * WINDOW


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 3, 8, 64])
def test_a_text_in_chunks_is_the_text_at_once(kind: str, chunk: int) -> None:
    stream, count = Stream(), 64
    whole = forward(counterpart(KINDS[kind](), 1), stream, 0, count)
    cache = counterpart(KINDS[kind](), 1)
    parts = [forward(cache, stream, begin, min(chunk, count - begin)) for begin in range(0, count, chunk)]
    assert np.abs(np.concatenate(parts, axis=-2) - whole).max() <= TOLERANCE


@pytest.mark.parametrize("make", [RowCache, lambda rows: WindowCache(rows, WINDOW)])
def test_rows_of_unequal_length_roll_back_each_by_its_own(make: Callable[[int], Any]) -> None:
    rng, streams = np.random.default_rng(5), [Stream(seed) for seed in range(3)]
    together, alone, lengths = make(3), [make(1) for _ in range(3)], [0, 0, 0]
    for turn in range(60):
        count = (1, 4, 2)[turn % 3]
        parts = [
            mx.concatenate(rows) for rows in zip(*map(Stream.at, streams, lengths, [count] * 3), strict=True)
        ]
        found = np.array(attend(together, parts))
        for b, cache in enumerate(alone):
            expected = np.array(attend(cache, streams[b].at(lengths[b], count)))
            assert np.abs(found[b] - expected[0]).max() <= TOLERANCE
        kept = [int(k) for k in rng.integers(0, count + 1, 3)]
        lengths = [length + some for length, some in zip(lengths, kept, strict=True)]
        together.roll_back(lengths)
        for length, cache in zip(lengths, alone, strict=True):
            cache.roll_back([length])


def test_both_of_a_pair_go_back_together() -> None:
    cache = PairCache(RowCache(1), WindowCache(1, WINDOW))
    forward(cache, Stream(), 0, 30)
    cache.roll_back([27])
    assert cache.lengths == cache[0].lengths == cache[1].lengths == [27]
    assert cache.offset == 27
    assert len(cache.state) == 4
    assert cache.nbytes == cache[0].nbytes + cache[1].nbytes


@pytest.mark.parametrize("cache", [RowCache(1), WindowCache(1, WINDOW), PairCache(RowCache(1), RowCache(1))])
def test_going_forward_by_rolling_back_is_refused(cache: Any) -> None:
    forward(cache, Stream(), 0, 5)
    for lengths in ([6], [-1]):
        with pytest.raises(ValueError, match="cannot roll"):
            cache.roll_back(lengths)


def test_a_state_goes_back_to_its_begin_from_anywhere(tmp_path: Path) -> None:
    pack = read_pack(write_checkpoint(tmp_path / "pack", "qwen3_5", head=False))
    body = load_model(pack).target
    tokens = mx.array([[(place * 37) % 290 + 3 for place in range(24)]])
    expected = np.array(body.run(tokens, body.make_cache(1))[0])
    cache = body.make_cache(1)
    for place in range(24):
        body.run(tokens[:, place : place + 1] + 1, cache)
    for layer in cache:
        layer.roll_back([0])
    assert np.array_equal(np.array(body.run(tokens, cache)[0]), expected)
