"""Blocks that were offered are there afterwards, and after a restart, as they were; what has no place is named."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.store import blockfile
from mtplxd.store.blocks import BlockBytes, Offered, Tensor
from mtplxd.store.disk import DiskStore
from mtplxd.store.keys import Chain
from mtplxd.store.limits import Limits
from support.block_store import (
    PLENTY,
    WAIT_S,
    Clock,
    chain_of,
    content_of,
    keep,
    offered_of,
    open_store,
    same,
    whole,
)

CHAIN = chain_of(range(80))
MUCH = Limits(size=1 << 30, free_floor=0, hourly_writes=1 << 30, queue=1 << 20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    store = open_store(tmp_path / "store")
    yield store
    store.close(WAIT_S)


def blocks(count: int, chain: Chain = CHAIN, **extra: int) -> list[Offered]:
    return [offered_of(chain, place, **extra) for place in range(count)]


def noise_of(nbytes: int) -> BlockBytes:
    return BlockBytes({}, (Tensor("noise", "bfloat16", (nbytes // 2,), os.urandom(nbytes)),))


def again(store: DiskStore, folder: Path, limits: Limits = PLENTY) -> DiskStore:
    assert store.close(WAIT_S)
    return open_store(folder, limits)


def test_a_chain_is_read_back_and_is_there_after_a_restart(store: DiskStore, tmp_path: Path) -> None:
    keep(store, blocks(10))
    assert whole(store, CHAIN) == 10
    before = store.counts()
    second = again(store, tmp_path / "store")
    assert whole(second, CHAIN) == 10
    after = second.counts()
    assert (after.blocks, after.nbytes, after.raw_bytes) == (before.blocks, before.nbytes, before.raw_bytes)
    assert (after.state, after.reason, after.bytes_written) == ("ready", "", 0)
    second.close(WAIT_S)


def test_a_block_stays_as_it_was_read_while_others_are(store: DiskStore) -> None:
    offered = blocks(6)
    keep(store, offered)
    read = [store.read(each.name, each.tokens) for each in offered]
    assert all(found and same(found, each.content) for found, each in zip(read, offered, strict=True))


def test_verifying_looks_at_the_bytes_of_a_file_too(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(store, blocks(1))
    read, looks = blockfile.read, []

    def watched(*arguments: Any, **how: bool) -> Any:
        looks.append(how["thorough"])
        return read(*arguments, **how)

    monkeypatch.setattr(blockfile, "read", watched)
    assert whole(store, CHAIN) == 1
    assert store.verify().blocks == 1
    assert looks == [False, True]


def test_what_is_known_of_a_block_is_the_same_after_a_restart(store: DiskStore, tmp_path: Path) -> None:
    keep(store, [*blocks(2, grade=1), offered_of(CHAIN, 2, 5, grade=3)])
    known = [store.find(CHAIN.name(0)), *store.tails(CHAIN.name(1)), *store.roots(range(8))]
    assert [each.length for each in known if each] == [8, 5, 8]
    second = again(store, tmp_path / "store")
    assert [second.find(CHAIN.name(0)), *second.tails(CHAIN.name(1)), *second.roots(range(8))] == known
    second.close(WAIT_S)


def test_a_block_is_found_only_once_it_is_on_the_disk(store: DiskStore, tmp_path: Path) -> None:
    with store._keeper.turn:
        assert store.offer(offered_of(CHAIN, 0))
        assert store.find(CHAIN.name(0)) is None
        assert store.why(CHAIN.name(0)) == "waiting"
        assert store.counts().waiting == 520
        assert not store.flush(0.01)
    assert store.flush(WAIT_S)
    kept = store.find(CHAIN.name(0))
    [file] = (tmp_path / "store" / "blocks").rglob("*.blk")
    assert kept
    assert kept.stored_bytes == file.stat().st_size
    assert store.counts().waiting == 0


def test_what_is_kept_is_not_written_again(store: DiskStore) -> None:
    keep(store, blocks(4))
    written = store.counts().bytes_written
    for _ in range(3):
        keep(store, blocks(4))
    assert store.counts().bytes_written == written
    assert store.counts().drop_reasons == {}


def test_a_block_of_a_higher_grade_takes_the_place_of_a_lower(store: DiskStore, tmp_path: Path) -> None:
    keep(store, blocks(2))
    better = replace(offered_of(CHAIN, 1, grade=2), content=content_of(b"better"))
    keep(store, [better])
    assert same(store.read(CHAIN.name(1), CHAIN.span(1)), better.content)
    keep(store, [offered_of(CHAIN, 1, grade=1)])
    second = again(store, tmp_path / "store")
    kept = second.find(CHAIN.name(1))
    assert kept
    assert kept.grade == 2
    assert same(second.read(CHAIN.name(1), CHAIN.span(1)), better.content)
    second.close(WAIT_S)


def test_the_longer_of_two_takes_the_tails_place_and_its_file(store: DiskStore, tmp_path: Path) -> None:
    keep(store, [offered_of(CHAIN, 0), offered_of(CHAIN, 1, 3)])
    keep(store, [offered_of(CHAIN, 1, 6)])
    assert [tail.length for tail in store.tails(CHAIN.name(0))] == [6]
    assert store.why(CHAIN.name(1, 3)) == "superseded"
    keep(store, [offered_of(CHAIN, 1)])
    assert store.tails(CHAIN.name(0)) == []
    assert len([*(tmp_path / "store" / "blocks").rglob("*.blk")]) == 2


def test_a_tail_that_is_held_or_worth_more_stays(store: DiskStore) -> None:
    keep(store, [offered_of(CHAIN, 0), offered_of(CHAIN, 1, 3, grade=1), offered_of(CHAIN, 1, 5)])
    with store.holding([CHAIN.name(1, 5)]):
        keep(store, [offered_of(CHAIN, 1)])
    assert [tail.length for tail in store.tails(CHAIN.name(0))] == [5, 3]


def test_a_growing_chat_writes_little_more_than_it_is_long(store: DiskStore) -> None:
    tokens = [*range(3000)]
    done = 0
    for turn in range(1, 101):
        chain = chain_of(tokens[: turn * 30])
        count = len(chain.nodes) - 1
        keep(store, [offered_of(chain, place) for place in range(done, count)])
        if rest := turn * 30 % 8:
            keep(store, [replace(offered_of(chain, count, rest), content=content_of(b"", 64 * rest))])
        done = count
    counts = store.counts()
    assert counts.blocks == done + bool(100 * 30 % 8)
    assert counts.bytes_written <= 1.5 * counts.nbytes


def test_other_tokens_of_the_same_name_are_never_given(store: DiskStore) -> None:
    keep(store, blocks(1))
    assert store.read(CHAIN.name(0), [*range(7), 99]) is None
    assert store.read(CHAIN.name(0), range(7)) is None
    assert store.counts().miss_reasons == {"other tokens": 2}
    assert whole(store, chain_of(range(8))) == 1


def test_a_name_that_is_not_that_of_its_tokens_is_refused(store: DiskStore) -> None:
    with pytest.raises(ValueError, match="name of another"):
        store.offer(replace(offered_of(CHAIN, 0), tokens=(9, 9)))


def test_a_block_without_its_beginning_is_not_taken(store: DiskStore) -> None:
    assert not store.offer(offered_of(CHAIN, 1))
    assert store.counts().drop_reasons == {"no parent": 1}
    assert store.why(CHAIN.name(1)) == "dropped"
    assert store.offer(offered_of(CHAIN, 0))
    assert store.offer(offered_of(CHAIN, 1))


def test_misses_and_hits_are_counted_with_their_reasons(store: DiskStore) -> None:
    keep(store, blocks(3))
    assert whole(store, CHAIN) == 3
    store.discard([CHAIN.name(2)])
    assert whole(store, CHAIN) == 2
    counts = store.counts()
    assert (counts.hits, counts.misses) == (5, 2)
    assert counts.miss_reasons == {"new": 1, "cleared": 1}


def test_what_was_read_can_be_written_to(store: DiskStore) -> None:
    keep(store, blocks(1))
    content = store.read(CHAIN.name(0), CHAIN.span(0))
    assert content
    for tensor in content.tensors:
        memoryview(tensor.data)[:] = bytes(tensor.nbytes)
    assert whole(store, chain_of(range(8))) == 1


def test_only_the_owner_can_read_anything(store: DiskStore, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        keep(store, blocks(3))
        path = next((tmp_path / "store" / "blocks").rglob("*.blk"))
        path.write_bytes(path.read_bytes()[:-1])
        store.verify()
        second = again(store, tmp_path / "store")
        second.close(WAIT_S)
    finally:
        os.umask(old)
    for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_discarding_takes_what_follows_along_and_nothing_else(store: DiskStore, tmp_path: Path) -> None:
    keep(store, [*blocks(6), offered_of(CHAIN, 3, 4)])
    freed = store.discard([CHAIN.name(3)])
    assert freed > 0
    assert whole(store, CHAIN) == 3
    assert store.counts().blocks == 4
    assert len([*(tmp_path / "store" / "blocks").rglob("*.blk")]) == 4
    assert store.discard([CHAIN.name(3), b"unknown"]) == 0


def test_clearing_leaves_no_byte_of_any_block(store: DiskStore, tmp_path: Path) -> None:
    keep(store, blocks(6))
    path = next((tmp_path / "store" / "blocks").rglob("*.blk"))
    path.write_bytes(path.read_bytes()[:-1])
    assert store.verify().bad == 1
    (tmp_path / "store" / "blocks" / "stray").mkdir()
    (tmp_path / "store" / "blocks" / "stray" / "thing").write_bytes(b"x")
    assert store.clear() > 0
    files = [path.name for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert sorted(files) in (["blocks.lock", "index.db"], ["blocks.lock", "index.db", "index.db-wal"])
    name = CHAIN.name(0)
    assert all(name not in (tmp_path / "store" / file).read_bytes() for file in files)
    assert store.counts().blocks == 0
    assert store.why(name) == "cleared"
    keep(store, blocks(6))
    assert whole(store, CHAIN) == 6


def test_clearing_takes_what_waits_along(store: DiskStore) -> None:
    with store._keeper.turn:
        for offered in blocks(4):
            store.offer(offered)
        store.clear()
    assert store.flush(WAIT_S)
    assert store.counts().blocks == store.counts().drop_reasons.get("cleared", 0) - 4 == 0


def test_pruning_a_sound_store_finds_nothing(store: DiskStore) -> None:
    keep(store, blocks(5))
    assert store.prune() == 0
    assert whole(store, CHAIN) == 5


def test_verifying_looks_at_every_block_and_can_be_stopped(store: DiskStore) -> None:
    keep(store, blocks(6))
    seen: list[tuple[int, int]] = []
    result = store.verify(lambda done, of: not seen.append((done, of)))
    assert seen == [(place, 6) for place in range(1, 7)]
    assert (result.blocks, result.nbytes, result.bad) == (6, store.counts().nbytes, 0)
    assert store.verify(lambda done, _of: done < 2).blocks == 2
    assert store.counts().hits == 0


def test_packing_tighter_changes_no_number_and_is_done_once(store: DiskStore, tmp_path: Path) -> None:
    keep(store, [*blocks(4, nbytes=40_000), offered_of(CHAIN, 4, 3)])
    before = store.counts()
    freed = store.recompress(lambda: True)
    after = store.counts()
    assert after.nbytes == before.nbytes - freed
    assert whole(store, CHAIN) == 4
    assert store.recompress(lambda: True) == 0
    assert store.counts().bytes_written == after.bytes_written
    second = again(store, tmp_path / "store")
    assert second.counts().nbytes == after.nbytes
    assert second.recompress(lambda: True) == 0
    assert second.counts().bytes_written == 0
    assert whole(second, CHAIN) == 4
    second.close(WAIT_S)


@pytest.mark.parametrize(("size", "packs"), [(2_000_000, True), (4_000_000, False)])
def test_an_idle_store_packs_by_itself_once_it_is_more_than_half_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, packs: bool
) -> None:
    monkeypatch.setattr("mtplxd.store.writer.IDLE_S", 0.01)
    real, done = DiskStore._pack_idle, threading.Event()

    def noted(store: DiskStore, idle: Callable[[], bool]) -> None:
        real(store, idle)
        if store.counts().blocks == 8:
            done.set()

    monkeypatch.setattr(DiskStore, "_pack_idle", noted)
    store = open_store(tmp_path / "store", replace(MUCH, size=size))
    keep(store, blocks(8, nbytes=80_000))
    assert done.wait(WAIT_S)
    assert {entry.packed for entry in store._keeper.entries()} == {int(packs)}
    assert whole(store, chain_of(range(64))) == 8
    store.close(WAIT_S)


def test_nothing_is_packed_while_somebody_decodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtplxd.store.writer.IDLE_S", 0.001)
    asked = threading.Semaphore(0)

    def busy() -> bool:
        asked.release()
        return True

    packed: list[int] = []
    monkeypatch.setattr(DiskStore, "_pack_idle", lambda *_: packed.append(1))
    store = DiskStore(tmp_path / "store", PLENTY, busy=busy)
    for _ in range(20):
        assert asked.acquire(timeout=WAIT_S)
    assert store.close(WAIT_S)
    assert not packed


def test_what_packs_no_tighter_is_not_written_again(store: DiskStore, tmp_path: Path) -> None:
    keep(store, [*blocks(4), replace(offered_of(CHAIN, 4), content=noise_of(50_000))])
    before = store.counts().bytes_written
    assert store.recompress(lambda: True) == 0
    assert store.counts().bytes_written == before
    second = again(store, tmp_path / "store")
    assert {entry.packed for entry in second._keeper.entries()} == {1}
    assert whole(second, chain_of(range(32))) == 4
    second.close(WAIT_S)


def test_packing_stops_once_somebody_works(store: DiskStore) -> None:
    keep(store, blocks(4, nbytes=80_000))
    turns = iter([True, True, False])
    written = store.counts().bytes_written
    store.recompress(lambda: next(turns))
    assert store.counts().bytes_written > written
    assert next(turns, None) is None


def test_it_rests_while_somebody_decodes_but_not_while_somebody_waits(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "store", PLENTY, busy=lambda: True)
    for offered in blocks(8, nbytes=100_000):
        store.offer(offered)
    assert store.flush(WAIT_S)
    assert whole(store, CHAIN) == 8
    assert store.close(WAIT_S)


def test_the_writers_thread_lowers_itself(tmp_path: Path) -> None:
    lowered: list[str] = []
    store = open_store(
        tmp_path / "store", lower_priority=lambda: lowered.append(threading.current_thread().name)
    )
    assert lowered == ["store-writer"]
    store.close(WAIT_S)


def test_closing_writes_what_waits(store: DiskStore, tmp_path: Path) -> None:
    for offered in blocks(10):
        store.offer(offered)
    assert store.close(WAIT_S)
    second = open_store(tmp_path / "store")
    assert whole(second, CHAIN) == 10
    second.close(WAIT_S)


def test_a_closed_store_takes_nothing_and_says_so(store: DiskStore) -> None:
    keep(store, blocks(1))
    assert store.close(WAIT_S)
    assert not store.offer(offered_of(CHAIN, 1))
    assert store.counts().drop_reasons == {"closed": 1}
    assert store.counts().state == "closed"
    assert store.close(WAIT_S)
    with pytest.raises(FailedPrecondition, match="closed"):
        store.clear()


def test_closing_in_no_time_says_that_something_is_lost(store: DiskStore) -> None:
    with store._keeper.turn:
        for offered in blocks(3):
            store.offer(offered)
        assert not store.close(0.0)


def test_two_stores_never_share_a_folder(store: DiskStore, tmp_path: Path) -> None:
    keep(store, blocks(2))
    clock = Clock()
    second = open_store(tmp_path / "store", clock=clock)
    counts = second.counts()
    assert counts.state == "degraded"
    assert "another process" in counts.reason
    assert second.read(CHAIN.name(0), CHAIN.span(0)) is None
    assert second.counts().miss_reasons == {"not open": 1}
    assert not second.offer(offered_of(CHAIN, 0))
    with pytest.raises(FailedPrecondition, match="another process"):
        second.clear()
    assert whole(store, CHAIN) == 2
    assert store.close(WAIT_S)
    clock.now += 60.0
    keep(second, [offered_of(CHAIN, 0)])
    assert whole(second, CHAIN) == 2
    second.close(WAIT_S)
