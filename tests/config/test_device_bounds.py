"""The bounds MLX is given: the allocator's cache is never raised, and what came of asking for wired memory is told."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from mtplxd.platform.device import IN_FORCE, NO_WIRED, DeviceLimits, bound_cache, bound_wired
from mtplxd.platform.mlx import CACHE_MOST, mx


class Device:
    """MLX as a device answers: setters give what was in force before."""

    def __init__(self, *, cache: int = 1 << 40, working_set: int = 0, most_wired: int | None = None) -> None:
        self.cache, self.wired = cache, 0
        self.info = {"max_recommended_working_set_size": working_set} if working_set else {}
        self.most_wired = most_wired

    def device_info(self) -> dict[str, int]:
        return self.info

    def set_cache_limit(self, limit: int) -> int:
        before, self.cache = self.cache, limit
        return before

    def set_wired_limit(self, limit: int) -> int:
        if self.most_wired == 0:
            raise ValueError("[metal::set_wired_limit] Setting a wired limit is not allowed.")
        before, self.wired = self.wired, min(limit, self.most_wired or limit)
        return before


def test_a_cache_without_a_bound_gets_one_and_a_smaller_one_stays() -> None:
    large, small = Device(), Device(cache=100)
    assert (bound_cache(large, 1000), large.cache) == (1000, 1000)
    assert (bound_cache(small, 1000), small.cache) == (100, 100)


def test_a_device_that_wires_is_asked_for_no_more_than_its_working_set() -> None:
    device = Device(working_set=500)
    assert bound_wired(device, 300) == (300, IN_FORCE)
    assert bound_wired(device, 900) == (500, IN_FORCE)
    assert device.wired == 500


def test_a_refusal_is_told_and_not_dropped() -> None:
    limit, words = bound_wired(Device(working_set=500, most_wired=0), 300)
    assert limit == 0
    assert words.startswith("refused: ")
    assert "not allowed" in words


def test_less_than_was_asked_for_is_told() -> None:
    limit, words = bound_wired(Device(working_set=500, most_wired=200), 300)
    assert limit == 200
    assert words == "300 were asked for, 200 are in force"


def test_a_device_that_wires_nothing_says_so() -> None:
    limits = DeviceLimits()
    limits.bound(Device(cache=50), 1000, 1000)
    found = limits.read()
    assert (found.cache_limit, found.wired_limit, found.wired) == (50, 0, NO_WIRED)


def test_whoever_imports_mlx_has_a_bounded_cache() -> None:
    before = mx.set_cache_limit(0)
    mx.set_cache_limit(before)
    assert 0 < before <= CACHE_MOST


def test_what_is_in_memory_is_counted() -> None:
    limits = DeviceLimits()
    before = limits.read().active
    held: Any = mx.zeros((1 << 18,))
    mx.eval(held)
    assert limits.read().active - before == held.nbytes


def test_counts_are_zero_until_mlx_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = DeviceLimits()
    for half in (
        None,
        ModuleType("mtplxd.platform.mlx"),
    ):  # whoever asks while it is imported meets a half one
        monkeypatch.setitem(sys.modules, "mtplxd.platform.mlx", half)
        assert (limits.read().active, limits.read().cache) == (0, 0)


@pytest.mark.parametrize("gigabytes", [8, 16, 64, 512])
def test_the_cache_is_a_small_part_of_every_budget(gigabytes: int) -> None:
    from mtplxd.packs.memory import GIB, MIB, cache_bytes

    assert 32 * MIB <= cache_bytes(gigabytes * GIB) <= min(GIB, gigabytes * GIB // 16)
    assert cache_bytes(1) == 32 * MIB
