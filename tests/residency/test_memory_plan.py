"""The memory plan is arithmetic: machines from 8 to 512 GB, budgets up and down, eviction before refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtplxd.packs.headers import TensorInfo
from mtplxd.packs.pack import read_pack
from mtplxd.paths import Home
from mtplxd.residency.catalog import PackCatalog
from mtplxd.residency.plan import (
    GIB,
    RUNTIME_BYTES,
    Admit,
    Need,
    Refuse,
    Resident,
    budget_bytes,
    decide,
    kv_bytes_per_token,
    margin_bytes,
    tensor_bytes,
)
from support.tiny_pack import make_tiny_pack

MACHINES = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512]


@pytest.mark.parametrize("size", MACHINES)
def test_default_budget_leaves_a_quarter_but_never_hoards(size: int) -> None:
    reserve = size * GIB - budget_bytes(size * GIB)
    assert reserve == min(max(size * GIB // 4, 2 * GIB), 16 * GIB)


@pytest.mark.parametrize("size", MACHINES)
def test_an_explicit_budget_plans_up_and_down(size: int) -> None:
    total = size * GIB
    default = budget_bytes(total)
    assert budget_bytes(total, GIB) == GIB < default
    higher = default + GIB
    assert budget_bytes(total, higher) == higher > default


@pytest.mark.parametrize("size", MACHINES)
def test_no_budget_reaches_into_the_machines_margin(size: int) -> None:
    total = size * GIB
    assert budget_bytes(total, 2 * total) == total - margin_bytes(total) < total


def test_the_devices_own_limit_caps_every_budget() -> None:
    assert budget_bytes(96 * GIB, 90 * GIB, device_limit=72 * GIB) == 72 * GIB
    assert budget_bytes(96 * GIB, None, device_limit=72 * GIB) == 72 * GIB


@pytest.mark.parametrize("size", MACHINES)
def test_a_model_that_fills_the_budget_fits_and_one_byte_more_does_not(size: int) -> None:
    total = size * GIB
    budget = budget_bytes(total)
    room = budget - RUNTIME_BYTES
    assert decide(Need(room), budget, total, margin_bytes(total), []) == Admit()
    refusal = decide(Need(room + 1), budget, total, margin_bytes(total), [])
    assert refusal == Refuse(needed=room + 1, available=room)


def test_free_memory_refuses_what_the_budget_would_allow() -> None:
    assert decide(Need(3 * GIB), 12 * GIB, 2 * GIB, GIB, []) == Refuse(3 * GIB, GIB)


def resident(key: str, size: int, *, idle: bool = True, since: float = 0.0) -> Resident:
    return Resident(key, Need(size), idle, since)


def test_least_recently_used_goes_first_and_only_as_many_as_needed() -> None:
    residents = [resident("new", 4 * GIB, since=9.0), resident("old", 4 * GIB, since=1.0)]
    budget = 10 * GIB + RUNTIME_BYTES
    assert decide(Need(5 * GIB), budget, 64 * GIB, GIB, residents) == Admit(("old",))
    assert decide(Need(9 * GIB), budget, 64 * GIB, GIB, residents) == Admit(("old", "new"))


def test_a_model_in_use_is_never_evicted() -> None:
    residents = [resident("busy", 6 * GIB, idle=False), resident("idle", 2 * GIB)]
    budget = 10 * GIB + RUNTIME_BYTES
    assert decide(Need(4 * GIB), budget, 64 * GIB, GIB, residents) == Admit(("idle",))
    assert decide(Need(5 * GIB), budget, 64 * GIB, GIB, residents) == Refuse(5 * GIB, 4 * GIB)


def test_what_can_be_evicted_counts_as_available() -> None:
    """A swap of two models that never fit together is admitted although nothing is free now."""
    residents = [resident("old", 8 * GIB)]
    assert decide(Need(8 * GIB), 9 * GIB + RUNTIME_BYTES, GIB, GIB, residents) == Admit(("old",))


@given(
    need=st.integers(1, 64 * GIB),
    budget=st.integers(0, 512 * GIB),
    free=st.integers(0, 512 * GIB),
    sizes=st.lists(st.tuples(st.integers(1, 32 * GIB), st.booleans(), st.floats(0, 1e6)), max_size=6),
)
def test_an_admission_always_fits(
    need: int, budget: int, free: int, sizes: list[tuple[int, bool, float]]
) -> None:
    residents = [resident(str(i), size, idle=idle, since=t) for i, (size, idle, t) in enumerate(sizes)]
    decision = decide(Need(need), budget, free, GIB, residents)
    if isinstance(decision, Refuse):
        assert decision.needed == need > decision.available >= 0
        return
    kept = [r for r in residents if r.key not in decision.evict]
    gone = [r for r in residents if r.key in decision.evict]
    assert all(r.idle for r in gone)
    assert need + RUNTIME_BYTES + sum(r.need.total for r in kept) <= budget
    assert need <= free - GIB + sum(r.need.body for r in gone)


def test_halves_double_only_where_they_compute_in_float32() -> None:
    tensors = [
        TensorInfo("BF16", (4,), 0, 8),
        TensorInfo("F32", (4,), 8, 24),
        TensorInfo("U32", (2,), 24, 32),
    ]
    assert tensor_bytes(tensors, widen=False) == 32
    assert tensor_bytes(tensors, widen=True) == 40
    fp8 = [TensorInfo("F8_E4M3", (4,), 0, 4)]  # which nothing computes with
    assert (tensor_bytes(fp8, widen=False), tensor_bytes(fp8, widen=True)) == (8, 16)


def test_keys_and_values_follow_the_config() -> None:
    config = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}
    assert kv_bytes_per_token(config, widen=True) == 2 * 31 * 3 * 64 * 4
    assert kv_bytes_per_token({"text_config": config}, widen=False) == 2 * 31 * 3 * 64 * 2


def test_the_need_of_a_pack_counts_its_head_only_when_it_is_loaded(tmp_path: Path) -> None:
    pack = read_pack(make_tiny_pack(tmp_path / "tiny"))
    catalog = PackCatalog(Home(tmp_path))
    whole = catalog.need(pack, headless=False, widen=True)
    assert whole.body == 2 * pack.bytes_body
    assert whole.head > pack.bytes_head
    assert catalog.need(pack, headless=True, widen=True).head == 0
    assert whole.total == whole.body + whole.head + whole.kv + whole.transients
