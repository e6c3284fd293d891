"""Attention narrowed by an indexer: each position attends to the slots chosen for it and to no other."""

from __future__ import annotations

from typing import Any

import pytest
from mtplxd.families.latent import absorb_latent, install
from mtplxd.families.latent import sparse as narrowing
from mtplxd.platform.mlx import mx
from support.latent_attention import KINDS, TOP_K, Kind, call, draw, make_attention, make_cache

ALLOWED = 1e-5
SPARSE = [kind for kind in KINDS if kind.sparse]
kinds = pytest.mark.parametrize("kind", SPARSE, ids=str)


def pair_of(kind: Kind, **fields: Any) -> tuple[Any, Any]:
    stock, ours = (make_attention(kind, **fields) for _ in range(2))
    assert absorb_latent(ours) == []
    return stock, ours


def outputs_of(kind: Kind, stock: Any, ours: Any, warm: int, length: int, rows: int = 1) -> list[Any]:
    found = []
    for attention in (stock, ours):
        cache = make_cache(kind, rows)
        call(kind, stock, draw(rows, warm), cache)
        found.append(call(kind, attention, draw(rows, length, seed=2), cache))
    return found


@kinds
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("gathers", [False, True], ids=["hidden", "gathered"])
@pytest.mark.parametrize("length", range(1, 9))
def test_both_ways_beyond_the_top_k_give_what_mlx_lm_gives(
    kind: Kind, rows: int, gathers: bool, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = 8 * TOP_K + 9 if gathers else max(TOP_K, length * TOP_K - length)
    pair = pair_of(kind)
    gathered: list[int] = []
    real = narrowing._attend_gathered
    monkeypatch.setattr(narrowing, "_attend_gathered", lambda *given: gathered.append(1) or real(*given))
    monkeypatch.setattr(install, "absorbing_pays", lambda *_: True)
    stock, ours = outputs_of(kind, *pair, warm, length, rows)
    assert mx.abs(stock - ours).max().item() <= ALLOWED
    assert bool(gathered) == (gathers or length == 1)


@kinds
def test_the_choice_changes_what_is_found(kind: Kind) -> None:
    """Else the tests above would not see a choice that is ignored."""
    _, ours = pair_of(kind)
    _, dense = pair_of(kind, index_topk=512)
    narrowed, whole = outputs_of(kind, ours, ours, 60, 4)[1], outputs_of(kind, dense, dense, 60, 4)[1]
    assert mx.abs(narrowed - whole).max().item() > 100 * ALLOWED


@kinds
@pytest.mark.parametrize("length", [2, 4, 8])
def test_positions_on_both_sides_of_the_top_k_are_right(
    kind: Kind, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them see fewer slots than the indexer chooses, so it chooses some that none may see."""
    monkeypatch.setattr(install, "absorbing_pays", lambda *_: True)
    stock, ours = outputs_of(kind, *pair_of(kind), TOP_K - length // 2, length)
    assert mx.abs(stock - ours).max().item() <= ALLOWED


@kinds
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_row_shorter_than_the_top_k_sees_its_own_slots_only(kind: Kind, length: int) -> None:
    """Beside a long row, so that the slots chosen for the short one are gathered and most of them are not its own."""
    pair, found = pair_of(kind), []
    for attention in pair:
        cache = make_cache(kind, rows=2)
        call(kind, pair[0], draw(2, 120), cache)
        cache.roll_back([120, TOP_K // 2])
        found.append(call(kind, attention, draw(2, length, seed=2), cache))
    assert mx.abs(found[0] - found[1]).max().item() <= ALLOWED


@kinds
def test_the_indexer_keeps_its_published_choice_after_the_check(kind: Kind) -> None:
    _, ours = pair_of(kind)
    assert ours.indexer.index_topk == TOP_K
