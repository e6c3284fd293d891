"""What does not fit makes idle models leave first, or is refused with numbers, before a weight is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import ResourceExhausted
from mtplxd.residency.plan import GIB, RUNTIME_BYTES
from support.fake_residency import WAIT_S, Rig, make_rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return make_rig(tmp_path, budget=10 * GIB + RUNTIME_BYTES)


def test_the_idle_model_is_freed_before_the_next_one_is_read(rig: Rig) -> None:
    rig.catalog.add("a", 6 * GIB)
    rig.catalog.add("b", 6 * GIB)
    rig.load("a")
    rig.load("b")
    assert rig.loader.events == ["load a", "free a", "load b"]
    assert rig.states() == {"b": "ready"}


def test_the_least_recently_used_leaves(rig: Rig) -> None:
    for name in ("a", "b"):
        rig.catalog.add(name, 4 * GIB)
        rig.load(name)
        rig.clock.now += 10
    rig.load("a")
    rig.catalog.add("c", 4 * GIB)
    rig.load("c")
    assert set(rig.states()) == {"a", "c"}


def test_a_model_in_use_stays_and_the_refusal_says_when_to_retry(rig: Rig) -> None:
    rig.catalog.add("a", 6 * GIB)
    rig.catalog.add("b", 6 * GIB)
    lease = rig.residency.acquire("a").result(WAIT_S)
    with pytest.raises(ResourceExhausted) as refused:
        rig.residency.acquire("b").result(WAIT_S)
    assert refused.value.needed == 6 * GIB
    assert refused.value.available == 4 * GIB
    assert refused.value.retry_after_s > 0
    assert str(6 * GIB) in str(refused.value)
    assert rig.loader.events == ["load a"], "nothing is read of a model that does not fit"
    lease.release()
    rig.load("b")


def test_what_a_worker_takes_is_not_there_for_models(rig: Rig) -> None:
    rig.catalog.add("a", 6 * GIB)
    rig.catalog.add("b", 3 * GIB)
    rig.elsewhere[0] = 5 * GIB
    with pytest.raises(ResourceExhausted) as refused:
        rig.residency.acquire("a").result(WAIT_S)
    assert refused.value.available == 5 * GIB
    rig.load("b")
    assert rig.residency.kv_budget(0) == 2 * GIB
    rig.elsewhere[0] = 0
    assert rig.residency.kv_budget(0) == 7 * GIB
    rig.load("a")


def test_a_model_larger_than_the_budget_is_refused_for_good(rig: Rig) -> None:
    rig.catalog.add("huge", 20 * GIB)
    with pytest.raises(ResourceExhausted) as refused:
        rig.residency.acquire("huge").result(WAIT_S)
    assert refused.value.retry_after_s == 0


def test_the_devices_own_limit_lowers_the_plan(rig: Rig) -> None:
    rig.catalog.add("a", 4 * GIB)
    rig.loader.limit = 3 * GIB
    with pytest.raises(ResourceExhausted):
        rig.residency.acquire("a").result(WAIT_S)
    assert rig.residency.budget == 3 * GIB


def test_memory_that_others_took_refuses_too(rig: Rig) -> None:
    rig.catalog.add("a", 4 * GIB)
    rig.memory.free_bytes = 3 * GIB
    with pytest.raises(ResourceExhausted):
        rig.residency.acquire("a").result(WAIT_S)


def test_an_allocator_that_gives_up_is_a_refusal_with_numbers(rig: Rig) -> None:
    rig.catalog.add("a", 4 * GIB)
    rig.loader.fails = MemoryError("unable to allocate")
    with pytest.raises(ResourceExhausted) as refused:
        rig.residency.acquire("a").result(WAIT_S)
    assert refused.value.needed == 4 * GIB
