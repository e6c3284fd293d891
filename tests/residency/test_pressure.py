"""What a reading of memory pressure means, and what is given back for it, cheapest first; nothing that is in use."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from mtplxd.errors import ResourceExhausted, Unavailable
from mtplxd.platform.pressure import Pressure
from mtplxd.residency.guard import Guard
from mtplxd.residency.plan import GIB, margin_bytes
from mtplxd.residency.pressure import (
    CRITICAL_SHARE,
    PATIENCE_S,
    SMALL,
    Idle,
    Level,
    Relief,
    Surplus,
    choose_relief,
    judge,
)
from support.fake_residency import WAIT_S, Rig, make_rig

MARGIN = margin_bytes(64 * GIB)
LONG, SHORT, PINNED = Idle("long", 1.0), Idle("short", 9.0), Idle("pinned", 0.0, pinned=True)


@pytest.mark.parametrize(
    ("reading", "free", "over", "level"),
    [
        (Pressure(), 10 * GIB, 0, Level.NORMAL),
        (Pressure(), None, 0, Level.NORMAL),
        (Pressure(kernel=1), None, 0, Level.NORMAL),
        (Pressure(kernel=2), None, 0, Level.WARN),
        (Pressure(kernel=4), None, 0, Level.CRITICAL),
        (Pressure(kernel=3), None, 0, Level.NORMAL),  # no level of today's kernels
        (Pressure(some=9.9, full=9.9), 10 * GIB, 0, Level.NORMAL),
        (Pressure(some=10.0, full=0.0), 10 * GIB, 0, Level.WARN),
        (Pressure(some=60.0, full=10.0), 10 * GIB, 0, Level.CRITICAL),
        (Pressure(), MARGIN - 1, 0, Level.WARN),
        (Pressure(), MARGIN, 0, Level.NORMAL),
        (Pressure(), MARGIN // CRITICAL_SHARE - 1, 0, Level.CRITICAL),
        (Pressure(kernel=1), None, 1, Level.WARN),  # a smaller machine than the kernel knows of
        (Pressure(kernel=4), None, 1, Level.CRITICAL),
    ],
)
def test_a_reading_has_one_level(reading: Pressure, free: int | None, over: int, level: Level) -> None:
    assert judge(reading, free, MARGIN, over) is level


def test_with_memory_enough_nothing_goes() -> None:
    assert not choose_relief(Level.NORMAL, 0, Surplus(GIB, GIB, (LONG,)))


def test_the_cheapest_goes_first_and_idle_models_by_their_last_use() -> None:
    there = Surplus(GIB, 4 * SMALL, (SHORT, LONG, PINNED))
    assert choose_relief(Level.WARN, 0, there) == Relief(cache=True)
    assert choose_relief(Level.WARN, 1, there) == Relief(cache=True, kept=2 * SMALL)
    assert choose_relief(Level.WARN, 2, Surplus(0, SMALL, (LONG,))) == Relief(kept=SMALL)
    assert choose_relief(Level.WARN, 3, Surplus(0, 0, (SHORT, PINNED, LONG))) == Relief(evict="long")


def test_a_pinned_model_goes_only_at_the_end_and_after_all_others() -> None:
    assert not choose_relief(Level.WARN, 9, Surplus(idle=(PINNED,)))
    assert choose_relief(Level.CRITICAL, 9, Surplus(idle=(PINNED, SHORT))).evict == "short"
    assert choose_relief(Level.CRITICAL, 9, Surplus(idle=(PINNED,))).evict == "pinned"


def test_at_the_end_all_of_it_goes_at_once() -> None:
    there = Surplus(GIB, 4 * SMALL, (SHORT, LONG))
    assert choose_relief(Level.CRITICAL, 0, there) == Relief(cache=True, kept=4 * SMALL, evict="long")


def test_a_cache_that_is_hardly_one_is_left_alone() -> None:
    assert not choose_relief(Level.WARN, 0, Surplus(cache=SMALL - 1))


class Holder:
    """Caches that are gone once they are given back; `pending` gives are not done yet."""

    def __init__(self) -> None:
        self.cache, self.kept = GIB, 4 * SMALL
        self.given: list[int] = []
        self.pending: list[Future[Any]] = []
        self.slow = False

    def cache_bytes(self) -> int:
        return self.cache

    def kept_bytes(self) -> int:
        return self.kept

    def give_back(self, *, kept: int) -> Future[Any]:
        self.given.append(kept)
        self.cache, self.kept = 0, self.kept - kept
        future: Future[Any] = Future()
        if self.slow:
            self.pending.append(future)
        else:
            future.set_result(None)
        return future


class Watched:
    """A guard on a residency without models, and the reading it gets."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.holder, self.reading = rig, Holder(), Pressure()
        self.guard = Guard(rig.residency, rig.memory, self.holder, read=lambda: self.reading, clock=rig.clock)

    def look(self, *, after: float = 0.0) -> None:
        self.rig.clock.now += after
        self.guard.look()
        self.rig.residency._jobs.submit(lambda: None).result(WAIT_S)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    rig = make_rig(tmp_path)
    for name in ("a", "b"):
        rig.catalog.add(name)
        rig.load(name)
        rig.clock.now += 10
    yield Watched(rig)
    rig.residency.close()


def test_a_short_spike_costs_the_allocators_cache_alone(watched: Watched) -> None:
    watched.reading = Pressure(kernel=2)
    watched.look()
    watched.look(after=PATIENCE_S / 2)
    watched.reading = Pressure(kernel=1)
    watched.look(after=PATIENCE_S)
    assert watched.holder.given == [0]
    assert set(watched.rig.states()) == {"a", "b"}


def test_pressure_that_stays_takes_prompts_then_models_one_at_a_time(watched: Watched) -> None:
    watched.reading = Pressure(kernel=2)
    watched.look()
    for _ in range(3):  # two halves, and what is left
        watched.look(after=PATIENCE_S)
    assert (watched.holder.kept, set(watched.rig.states())) == (0, {"a", "b"})
    watched.look(after=PATIENCE_S)
    assert set(watched.rig.states()) == {"b"}
    watched.look(after=PATIENCE_S / 2)
    assert set(watched.rig.states()) == {"b"}
    watched.look(after=PATIENCE_S)
    assert watched.rig.states() == {}
    view = watched.guard.view
    assert (view.level, view.last, view.steps) == (Level.WARN, "model b", 6)


def test_a_model_in_use_stays_however_short_memory_is(watched: Watched) -> None:
    leases = [watched.rig.residency.acquire(name).result(WAIT_S) for name in ("a", "b")]
    watched.reading = Pressure(kernel=4)
    for _ in range(5):
        watched.look(after=PATIENCE_S)
    assert watched.rig.states() == {"a": "ready", "b": "ready"}
    assert watched.holder.given == [4 * SMALL]
    leases[0].release()
    watched.look(after=PATIENCE_S)
    assert watched.rig.states() == {"b": "ready"}
    leases[1].release()


def test_at_the_end_nobody_new_is_let_in_and_later_everybody_is(watched: Watched) -> None:
    lease = watched.rig.residency.acquire("a").result(WAIT_S)
    watched.reading = Pressure(kernel=4)
    watched.look()
    with pytest.raises(ResourceExhausted, match="out of memory") as refused:
        watched.rig.residency.acquire("a")
    assert refused.value.retry_after_s > 0
    watched.reading = Pressure(kernel=1)
    watched.look()
    watched.rig.load("a")
    lease.release()


def test_a_pinned_model_is_the_last_to_go(watched: Watched) -> None:
    lease = watched.rig.residency.acquire("a").result(WAIT_S)
    watched.rig.residency.configure(lease, pinned=True)
    lease.release()
    watched.rig.clock.now += 1
    watched.reading = Pressure(kernel=4)
    watched.look()
    assert watched.rig.states() == {"a": "ready"}
    watched.look()
    assert watched.rig.states() == {}


def test_nothing_more_is_asked_for_while_something_is_on_its_way(watched: Watched) -> None:
    watched.holder.slow = True
    watched.reading = Pressure(kernel=4)
    watched.look()
    watched.holder.cache = GIB
    watched.look(after=PATIENCE_S)
    assert len(watched.holder.given) == 1
    watched.holder.pending[0].set_result(None)
    watched.look(after=PATIENCE_S)
    assert len(watched.holder.given) == 2


def test_a_process_larger_than_its_budget_gives_back_on_a_machine_with_memory_enough(
    watched: Watched,
) -> None:
    watched.rig.memory.used_bytes = watched.rig.residency.budget + 1
    watched.look()
    assert watched.guard.view.level is Level.WARN
    assert watched.guard.view.reading == "1 bytes over the budget"
    assert watched.holder.given == [0]
    watched.rig.load("a")  # requests are served all the same


def test_where_memory_is_short_a_model_comes_in_only_in_place_of_others(watched: Watched) -> None:
    watched.rig.catalog.add("large", 2 * GIB)
    watched.reading = Pressure(kernel=2)
    watched.look()
    watched.rig.load("large")
    assert set(watched.rig.states()) == {"large"}
    watched.rig.catalog.add("larger", 3 * GIB)
    with pytest.raises(ResourceExhausted):
        watched.rig.load("larger")


def test_a_daemon_that_stops_gives_nothing_back_and_says_nothing(watched: Watched) -> None:
    def refuse(*, kept: int) -> Future[Any]:
        raise Unavailable(f"the daemon is stopping, {kept}")

    watched.holder.give_back = refuse  # type: ignore[method-assign]
    watched.reading = Pressure(kernel=2)
    watched.look()
    assert watched.guard.view.steps == 0
