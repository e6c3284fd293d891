"""Reproducible forwards: as many positions and slots as the block says, not all of them filled."""

from __future__ import annotations

from typing import Any

import pytest
from mtplxd.families.latent import absorb_latent
from mtplxd.platform.mlx import Array, mx
from support.latent_attention import HIDDEN, KINDS, Kind, call, draw, make_attention, make_cache

ALLOWED = 1e-5
BLOCK, WIDTH = 32, 4
BEGIN = 40

kinds = pytest.mark.parametrize("kind", KINDS, ids=str)


def absorbing(kind: Kind) -> Any:
    attention = make_attention(kind, **({"index_topk": 8} if kind.sparse else {}))
    assert absorb_latent(attention) == []
    return attention


def run(kind: Kind, attention: Any, parts: list[int], width: int | None) -> Array:
    """Outputs of the positions behind BEGIN, so many of them a forward, the rest of a forward's width padded."""
    total = sum(parts)
    x, cache, found, begin = draw(1, BEGIN + total), make_cache(kind), [], BEGIN
    call(kind, attention, x[:, :BEGIN], cache)
    if width is not None:
        cache.fix_window(BLOCK, width)
    for count in parts:
        padding = mx.zeros((1, (width or count) - count, HIDDEN))
        given = mx.concatenate([x[:, begin : begin + count], padding], axis=1)
        found.append(call(kind, attention, given, cache)[:, :count])
        begin += count
        cache.roll_back([begin])
    return mx.concatenate(found, axis=1)


@kinds
@pytest.mark.parametrize("width", [1, WIDTH])
def test_slots_beyond_the_filled_ones_are_not_attended_to(kind: Kind, width: int) -> None:
    attention = absorbing(kind)
    parts = [width] * (8 // width)
    free, fixed = run(kind, attention, parts, None), run(kind, attention, parts, width)
    assert mx.abs(free - fixed).max().item() <= ALLOWED


@kinds
def test_a_position_has_the_same_bits_wherever_in_a_forward_it_stands(kind: Kind) -> None:
    attention = absorbing(kind)
    at_once = run(kind, attention, [WIDTH] * 2, WIDTH)
    for parts in ([1] * 8, [3, 1, 2, 2], [2, 3, 3]):
        assert mx.array_equal(at_once, run(kind, attention, parts, WIDTH)).item(), parts
