"""Models stay by default; a keep-alive sends idle ones away, never those in use."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition, NotFound
from support.fake_residency import WAIT_S, Rig, make_rig


def settle(rig: Rig) -> None:
    """Wait for the worker's queue: jobs run in order, so an unload of a failed entry comes last."""
    rig.residency._jobs.submit(lambda: None).result(WAIT_S)


def test_a_model_stays_for_ever_by_default(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.load("a")
    rig.clock.now += 1e9
    rig.residency.sweep()
    settle(rig)
    assert rig.states() == {"a": "ready"}
    assert rig.residency.views()[0].keep_alive_s == -1


def test_an_idle_model_leaves_after_its_keep_alive_and_not_before(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, keep_alive_s=600)
    rig.catalog.add("a")
    rig.load("a")
    rig.clock.now += 599
    rig.residency.sweep()
    settle(rig)
    assert rig.states() == {"a": "ready"}
    rig.clock.now += 1
    rig.residency.sweep()
    settle(rig)
    assert rig.states() == {}
    assert rig.loader.events == ["load a", "free a"]


def test_a_use_starts_the_time_anew(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, keep_alive_s=600)
    rig.catalog.add("a")
    rig.load("a")
    rig.clock.now += 500
    rig.load("a")
    rig.clock.now += 500
    rig.residency.sweep()
    settle(rig)
    assert rig.states() == {"a": "ready"}


def test_a_model_in_use_outlives_its_keep_alive(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, keep_alive_s=600)
    rig.catalog.add("a")
    lease = rig.residency.acquire("a").result(WAIT_S)
    rig.clock.now += 1e6
    rig.residency.sweep()
    settle(rig)
    assert rig.states() == {"a": "ready"}
    lease.release()


def test_zero_unloads_with_the_last_release(rig: Rig) -> None:
    rig.catalog.add("a")
    leases = [rig.residency.acquire("a").result(WAIT_S) for _ in range(2)]
    rig.residency.configure(leases[0], keep_alive_s=0)
    leases[0].release()
    leases[0].release()
    settle(rig)
    assert rig.states() == {"a": "ready"}
    leases[1].release()
    settle(rig)
    assert rig.states() == {}


def test_a_request_during_an_unload_loads_again(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.load("a")
    unloaded = rig.residency.unload("a")
    lease = rig.residency.acquire("a").result(WAIT_S)
    assert unloaded.result(WAIT_S).name == "a"
    assert rig.loader.events == ["load a", "free a", "load a"]
    assert rig.states() == {"a": "ready"}
    lease.release()


def test_unloading_a_busy_model_is_refused(rig: Rig) -> None:
    rig.catalog.add("a")
    lease = rig.residency.acquire("a").result(WAIT_S)
    with pytest.raises(FailedPrecondition, match="1 in flight"):
        rig.residency.unload("a")
    lease.release()
    rig.residency.unload("a").result(WAIT_S)
    with pytest.raises(NotFound):
        rig.residency.unload("a")


def test_the_only_resident_model_is_the_default_until_there_are_two(rig: Rig) -> None:
    assert rig.residency.only_resident() is None
    rig.catalog.add("a")
    rig.catalog.add("b")
    rig.load("a")
    assert rig.residency.only_resident() == "a"
    rig.load("b")
    assert rig.residency.only_resident() is None


def test_a_released_lease_gives_no_model(rig: Rig) -> None:
    rig.catalog.add("a")
    lease = rig.residency.acquire("a").result(WAIT_S)
    lease.release()
    with pytest.raises(RuntimeError):
        _ = lease.model
