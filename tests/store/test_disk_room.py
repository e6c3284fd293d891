"""What the store may take and what may wait: the least useful goes, what is in use stays, the rest is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from mtplxd.store.blocks import Offered
from mtplxd.store.disk import DiskStore
from mtplxd.store.keys import Chain
from mtplxd.store.limits import Limits
from support.block_store import (
    PLENTY,
    WAIT_S,
    Clock,
    FaultyFiling,
    chain_of,
    keep,
    offered_of,
    open_store,
    whole,
)

CHAIN = chain_of(range(80))
MUCH = Limits(size=1 << 30, free_floor=0, hourly_writes=1 << 30, queue=1 << 20)


def blocks(count: int, chain: Chain = CHAIN, **extra: int) -> list[Offered]:
    return [offered_of(chain, place, **extra) for place in range(count)]


def again(store: DiskStore, folder: Path, limits: Limits = PLENTY) -> DiskStore:
    assert store.close(WAIT_S)
    return open_store(folder, limits)


def test_the_store_keeps_within_its_size(tmp_path: Path) -> None:
    limits = replace(MUCH, size=2_500_000)
    store = open_store(tmp_path / "store", limits)
    for number in range(8):
        chain = chain_of(range(number, number + 64))
        keep(store, blocks(8, chain, nbytes=80_000))
        total = sum(path.stat().st_size for path in (tmp_path / "store").rglob("*") if path.is_file())
        assert total <= limits.size
    counts = store.counts()
    assert counts.evicted > 0
    assert counts.blocks == len([*(tmp_path / "store" / "blocks").rglob("*.blk")])
    assert whole(store, chain_of(range(7, 71))) == 8
    assert store.read(chain_of(range(64)).name(7), chain_of(range(64)).span(7)) is None
    assert store.counts().miss_reasons["evicted"] == 1
    store.close(WAIT_S)


def test_what_is_used_outlives_what_is_not_also_across_a_restart(tmp_path: Path) -> None:
    limits = replace(MUCH, size=1_700_000)
    store = open_store(tmp_path / "store", limits)
    used, unused = chain_of(range(64)), chain_of(range(100, 164))
    keep(store, [*blocks(6, used, nbytes=80_000), *blocks(6, unused, nbytes=80_000)])
    assert whole(store, used) == 6
    store = again(store, tmp_path / "store", limits)
    keep(store, blocks(8, chain_of(range(200, 264)), nbytes=80_000))
    assert whole(store, used) == 6
    assert whole(store, unused) < 6
    store.close(WAIT_S)


def test_a_running_request_loses_none_of_its_blocks(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", replace(MUCH, size=2_500_000))
    mine = chain_of(range(64))
    keep(store, blocks(8, mine, nbytes=80_000))
    with store.holding([mine.name(7)]):
        for number in range(1, 8):
            for offered in blocks(8, chain_of(range(number * 1000, number * 1000 + 64)), nbytes=80_000):
                store.offer(offered)
            assert store.flush(WAIT_S)
        assert whole(store, mine) == 8
    for number in range(8, 12):
        keep(store, blocks(8, chain_of(range(number * 1000, number * 1000 + 64)), nbytes=80_000))
    assert whole(store, mine) < 8
    store.close(WAIT_S)


def test_a_block_that_is_needed_since_it_was_chosen_to_go_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "store", replace(MUCH, size=2_000_000))
    mine = chain_of(range(64))
    keep(store, blocks(8, mine, nbytes=80_000))
    monkeypatch.setattr("mtplxd.store.keeper.choose_evicted", lambda _blocks, _need: mine.nodes[:0:-1])
    with store.holding([mine.name(5)]):
        keep(store, blocks(8, chain_of(range(900, 964)), nbytes=120_000))
        assert whole(store, mine) == 6
    store.close(WAIT_S)


def test_where_all_is_held_nothing_more_is_written(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", replace(MUCH, size=1_300_000))
    mine = chain_of(range(64))
    keep(store, blocks(7, mine, nbytes=80_000))
    with store.holding([mine.name(6)]):
        store.offer(offered_of(chain_of(range(900, 908)), 0, nbytes=600_000))
        assert store.flush(WAIT_S)
    assert store.counts().drop_reasons == {"no room": 1}
    assert whole(store, mine) == 7
    store.close(WAIT_S)


def test_a_block_larger_than_the_store_is_dropped_and_named(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", replace(MUCH, size=1_000_000))
    store.offer(offered_of(CHAIN, 0, nbytes=600_000))
    assert store.flush(WAIT_S)
    assert store.counts().drop_reasons == {"no room": 1}
    store.close(WAIT_S)


def test_a_block_larger_than_the_queue_is_written_all_the_same(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", replace(MUCH, queue=1000))
    keep(store, [offered_of(CHAIN, 0, nbytes=400_000)])
    assert whole(store, chain_of(range(8))) == 1
    store.close(WAIT_S)


def test_what_waits_is_bounded_and_the_rest_is_dropped_and_named(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", replace(MUCH, queue=1600))
    with store._keeper.turn:
        taken = [store.offer(offered) for offered in blocks(6)]
        assert taken == [True, True, True, False, False, False]
        left = 1600 - 3 * 520
        assert (store.takes(left), store.takes(left + 1)) == (True, False)
        assert store.counts().waiting == 3 * 520
    assert store.flush(WAIT_S)
    assert store.counts().drop_reasons == {"queue full": 3}
    assert store.takes(1 << 40)  # alone
    assert whole(store, CHAIN) == 3
    store.close(WAIT_S)


def test_where_memory_is_short_less_waits_and_never_more_than_the_limits_say(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", replace(MUCH, queue=1600))
    store.bound_queue(1100)
    with store._keeper.turn:
        assert [store.offer(offered) for offered in blocks(3)] == [True, True, False]
    assert store.flush(WAIT_S)
    store.bound_queue(1 << 50)
    with store._keeper.turn:
        assert [store.offer(offered) for offered in blocks(6)[2:]] == [True, True, True, False]
    store.close(WAIT_S)


def test_the_hourly_budget_stops_writes_and_only_those(tmp_path: Path) -> None:
    clock = Clock()
    limits = replace(MUCH, hourly_writes=6000)
    store = open_store(tmp_path / "store", limits, clock=clock)
    for offered in blocks(10):
        store.offer(offered)
    assert store.flush(WAIT_S)
    counts = store.counts()
    assert 0 < counts.blocks < 10
    assert counts.bytes_written <= 6000
    assert counts.drop_reasons["write budget"] >= 1
    assert counts.state == "paused"
    assert "write budget" in counts.reason
    assert whole(store, CHAIN) == counts.blocks
    assert store.close(WAIT_S)
    store = open_store(tmp_path / "store", limits, clock=clock)
    store.offer(offered_of(CHAIN, counts.blocks))
    assert store.flush(WAIT_S)
    assert store.counts().blocks == counts.blocks
    clock.now += 3600.0
    keep(store, [offered_of(CHAIN, counts.blocks)])
    assert store.counts().blocks == counts.blocks + 1
    assert (store.counts().state, store.counts().reason) == ("ready", "")
    store.close(WAIT_S)


def test_below_the_floor_nothing_is_written_and_reads_go_on(tmp_path: Path) -> None:
    filing = FaultyFiling()
    filing.free_bytes = 12_000
    store = open_store(tmp_path / "store", replace(MUCH, free_floor=9_000), filing)
    keep(store, blocks(1))
    filing.free_bytes = 9_500
    store.offer(offered_of(CHAIN, 1))
    assert store.flush(WAIT_S)
    counts = store.counts()
    assert counts.drop_reasons == {"low disk": 1}
    assert counts.state == "paused"
    assert "free space" in counts.reason
    assert whole(store, CHAIN) == 1
    store._writer._work([])  # as it does every few seconds
    assert (store.counts().state, store.writable) == ("paused", False)
    filing.free_bytes = 12_000
    store._writer._work([])
    assert (store.counts().state, store.writable) == ("ready", True)
    keep(store, [offered_of(CHAIN, 1)])
    assert {*filing.asked_free} == {tmp_path / "store"}
    store.close(WAIT_S)


def test_every_write_asks_for_free_space_anew(tmp_path: Path) -> None:
    filing = FaultyFiling()
    store = open_store(tmp_path / "store", PLENTY, filing)
    before = len(filing.asked_free)
    for place in range(3):
        keep(store, [offered_of(CHAIN, place)])
    assert len(filing.asked_free) >= before + 3
    store.close(WAIT_S)
