"""The absorbed path gives what mlx-lm's own path gives, for every class that keeps a latent cache."""

from __future__ import annotations

from typing import Any

import pytest
from mtplxd.families.latent import absorb_latent, install
from mtplxd.families.latent.algebra import causal_mask
from mtplxd.platform.mlx import Array, mx
from support.latent_attention import KINDS, TOP_K, Kind, call, draw, make_attention, make_cache, quantise

ALLOWED = 1e-5
LENGTHS = range(1, 9)

kinds = pytest.mark.parametrize("kind", KINDS, ids=str)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths that went through the absorbed forward, once a call of it."""
    seen: list[int] = []
    real = install.attend_absorbed

    def counting(attention: Any, form: Any, x: Array, *rest: Any) -> Array:
        seen.append(x.shape[1])
        return real(attention, form, x, *rest)

    monkeypatch.setattr(install, "attend_absorbed", counting)
    return seen


def pair_of(kind: Kind, *, quantised: bool = False, **fields: Any) -> tuple[Any, Any]:
    """The same attention twice: as mlx-lm has it, and absorbing."""
    stock, ours = (make_attention(kind, **fields) for _ in range(2))
    if quantised:
        quantise(stock), quantise(ours)
    assert absorb_latent(ours) == []
    return stock, ours


def largest_difference(kind: Kind, stock: Any, ours: Any, warm: int, length: int, rows: int = 1) -> float:
    """Of a forward of `length` positions behind `warm` slots, which both made with mlx-lm's forward."""
    x = draw(rows, warm + length)
    outputs = []
    for attention in (stock, ours):
        cache = make_cache(kind, rows)
        if warm:
            call(kind, stock, x[:, :warm], cache)
        outputs.append(call(kind, attention, x[:, warm:], cache))
    return float(mx.abs(outputs[0] - outputs[1]).max().item())


@kinds
@pytest.mark.parametrize("quantised", [False, True], ids=["float", "quantised"])
def test_short_forwards_behind_a_warm_cache_are_absorbed_and_equal(
    kind: Kind, quantised: bool, counted: list[int]
) -> None:
    stock, ours = pair_of(kind, quantised=quantised)
    for length in LENGTHS:
        assert largest_difference(kind, stock, ours, 300, length) <= ALLOWED, length
    assert counted == list(LENGTHS)


@kinds
def test_a_cold_cache_goes_through_the_stock_forward(kind: Kind, counted: list[int]) -> None:
    stock, ours = pair_of(kind)
    for length in (*LENGTHS, 64):
        assert largest_difference(kind, stock, ours, 0, length) == 0.0
    assert counted == []


@kinds
def test_a_forward_without_a_cache_goes_through_the_stock_forward(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    if kind.sparse:
        pytest.skip("mlx-lm's own needs a cache")
    monkeypatch.setattr(install, "absorbing_pays", lambda *_: True)
    factor = (mx.ones((8, 1)),) if kind.scaled else ()
    outputs = [attention(draw(1, 8), *factor, causal_mask(8, 8), None) for attention in pair_of(kind)]
    assert mx.array_equal(*outputs).item()
    assert counted == []


@kinds
def test_a_long_chunk_goes_through_the_stock_forward(kind: Kind, counted: list[int]) -> None:
    stock, ours = pair_of(kind)
    assert largest_difference(kind, stock, ours, 32, 64) == 0.0
    assert counted == []


@kinds
@pytest.mark.parametrize("warm", [9, TOP_K - 1, TOP_K, 40, 255, 256])
def test_every_length_is_equal_wherever_it_begins(
    kind: Kind, warm: int, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    """Absorbed whether it pays or not, so that the few slots of a short text are tried as well."""
    monkeypatch.setattr(install, "absorbing_pays", lambda *_: True)
    stock, ours = pair_of(kind)
    for length in LENGTHS:
        assert largest_difference(kind, stock, ours, warm, length) <= ALLOWED, length
    assert counted == list(LENGTHS)


@kinds
def test_rows_of_unequal_length_are_equal_to_the_stock_forward(kind: Kind, counted: list[int]) -> None:
    stock, ours = pair_of(kind)
    for length in (1, 2, 5, 8):
        outputs = []
        for attention in (stock, ours):
            cache = make_cache(kind, rows=3)
            call(kind, stock, draw(3, 60), cache)
            cache.roll_back([60, 33, 47])
            outputs.append(call(kind, attention, draw(3, length, seed=2), cache))
        assert mx.abs(outputs[0] - outputs[1]).max().item() <= ALLOWED, length
    assert counted == [1, 2, 5, 8]


@kinds
def test_the_cache_holds_the_same_after_an_absorbed_forward(kind: Kind) -> None:
    stock, ours = pair_of(kind)
    x, caches = draw(1, 40), [make_cache(kind) for _ in range(2)]
    for attention, cache in zip((stock, ours), caches, strict=True):
        call(kind, stock, x[:, :36], cache)
        call(kind, attention, x[:, 36:], cache)
    assert caches[0].lengths == caches[1].lengths == [40]
    for wanted, found in zip(caches[0].state, caches[1].state, strict=True):
        assert mx.array_equal(wanted, found).item()


@kinds
def test_a_chunk_equals_its_steps_after_a_roll_back(kind: Kind) -> None:
    """As a verify whose drafts were rejected: the positions come again, one by one."""
    _, ours = pair_of(kind, **({"index_topk": 512} if kind.sparse else {}))
    x, cache = draw(1, 64), make_cache(kind)
    call(kind, ours, x[:, :60], cache)
    at_once = call(kind, ours, x[:, 60:], cache)
    cache.roll_back([60])
    steps = mx.concatenate(
        [call(kind, ours, x[:, place : place + 1], cache) for place in range(60, 64)], axis=1
    )
    assert mx.abs(at_once - steps).max().item() <= ALLOWED
