"""A model that was preloaded stays for others' loads and however long it idles; who asks for another time unpins it."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import ResourceExhausted
from mtplxd.residency.plan import GIB, RUNTIME_BYTES
from support.fake_residency import WAIT_S, Rig, make_rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = make_rig(tmp_path, budget=10 * GIB + RUNTIME_BYTES, keep_alive_s=60)
    for name in ("a", "b"):
        rig.catalog.add(name, 4 * GIB)
    lease = rig.residency.acquire("a").result(WAIT_S)
    rig.residency.configure(lease, pinned=True)
    lease.release()
    return rig


def settle(rig: Rig) -> None:
    rig.residency._jobs.submit(lambda: None).result(WAIT_S)


def test_another_models_load_takes_the_place_of_one_that_is_not_pinned(rig: Rig) -> None:
    rig.clock.now += 1
    rig.load("b")
    rig.catalog.add("c", 4 * GIB)
    rig.load("c")
    assert set(rig.states()) == {"a", "c"}
    rig.catalog.add("large", 8 * GIB)
    with pytest.raises(ResourceExhausted):
        rig.load("large")
    assert "a" in rig.states()


def test_a_pinned_model_outlives_its_keep_alive(rig: Rig) -> None:
    rig.load("b")
    rig.clock.now += 61
    rig.residency.sweep()
    settle(rig)
    assert rig.states() == {"a": "ready"}
    [view] = rig.residency.views()
    assert (view.pinned, view.keep_alive_s, view.keep_alive_from) == (True, 60, "default")


def test_who_asks_for_a_time_unpins_it_and_is_named(rig: Rig) -> None:
    lease = rig.residency.acquire("a").result(WAIT_S)
    rig.residency.configure(lease, keep_alive_s=5, keep_alive_from="request")
    lease.release()
    [view] = rig.residency.views()
    assert (view.pinned, view.keep_alive_s, view.keep_alive_from) == (False, 5, "request")
    rig.clock.now += 6
    rig.residency.sweep()
    settle(rig)
    assert rig.states() == {}


def test_zero_of_one_request_waits_for_the_others_that_use_the_model(rig: Rig) -> None:
    first, second = (rig.residency.acquire("a").result(WAIT_S) for _ in range(2))
    rig.residency.configure(first, keep_alive_s=0, keep_alive_from="request")
    first.release()
    settle(rig)
    assert rig.states() == {"a": "ready"}
    second.release()
    settle(rig)
    assert rig.states() == {}


def test_a_pinned_model_can_be_unloaded_by_name(rig: Rig) -> None:
    rig.residency.unload("a").result(WAIT_S)
    assert rig.states() == {}
