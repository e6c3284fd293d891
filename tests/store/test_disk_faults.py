"""Whatever the disk does, what is read is right, the reason is named and the store goes on once it can."""

from __future__ import annotations

import errno
import logging
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.store.disk import DiskStore
from mtplxd.store.index import Index
from support.block_store import (
    PLENTY,
    READ_ONLY,
    WAIT_S,
    Clock,
    FaultyFiling,
    chain_of,
    content_of,
    failing,
    keep,
    offered_of,
    open_store,
    whole,
)

CHAIN = chain_of(range(64))


def well(_operation: str, _path: Path) -> OSError | None:
    return None


class Rig:
    """A store of eight blocks on a file system that can fail, with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.filing, self.clock = folder, FaultyFiling(), Clock()
        self.store = self.open()
        keep(self.store, [offered_of(CHAIN, place) for place in range(6)])

    def open(self) -> DiskStore:
        return open_store(self.folder, PLENTY, self.filing, clock=self.clock)

    def reopen(self) -> DiskStore:
        assert self.store.close(WAIT_S)
        self.store = self.open()
        return self.store

    def file(self, place: int) -> Path:
        name = CHAIN.name(place)
        return self.folder / "blocks" / name[:1].hex() / f"{name.hex()}.blk"

    def offer(self, *places: int) -> None:
        for place in places:
            self.store.offer(offered_of(CHAIN, place))
        assert self.store.flush(WAIT_S)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "store")
    yield rig
    rig.filing.fail = well
    rig.store.close(WAIT_S)


@pytest.mark.parametrize("where", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_flipped_bit_ends_the_prefix_before_it_and_the_block_is_set_aside(rig: Rig, where: float) -> None:
    path = rig.file(3)
    data = bytearray(path.read_bytes())
    data[min(int(len(data) * where), len(data) - 1)] ^= 4
    path.write_bytes(data)
    assert whole(rig.store, CHAIN) == 3
    assert rig.store.flush(WAIT_S)
    counts = rig.store.counts()
    assert (counts.quarantined, counts.blocks) == (1, 5)
    assert counts.miss_reasons == {"quarantined": 1}
    assert not path.exists()
    assert [each.name for each in (rig.folder / "quarantine").iterdir()] == [path.name]
    rig.offer(3)
    assert whole(rig.store, CHAIN) == 6
    rig.reopen()
    assert whole(rig.store, CHAIN) == 6


@pytest.mark.parametrize("length", [0, 1, 7, 60, 200, -1])
def test_a_cut_file_ends_the_prefix_before_it(rig: Rig, length: int) -> None:
    path = rig.file(2)
    path.write_bytes(path.read_bytes()[:length])
    assert whole(rig.store, CHAIN) == 2
    rig.reopen()
    assert whole(rig.store, CHAIN) == 2
    rig.offer(2, 3, 4, 5)
    assert whole(rig.store, CHAIN) == 6


def test_a_block_in_anothers_file_is_not_taken_for_it(rig: Rig) -> None:
    shutil.copy(rig.file(1), rig.file(2))
    assert whole(rig.store, CHAIN) == 2
    assert rig.store.counts().miss_reasons == {"quarantined": 1}
    assert rig.store.flush(WAIT_S)  # what is set aside, is moved by then
    shutil.copy(rig.file(1), rig.file(2))
    rig.reopen()
    assert whole(rig.store, CHAIN) == 2


def test_random_damage_anywhere_never_gives_a_wrong_block(tmp_path: Path) -> None:
    draw = random.Random(8)
    rig = Rig(tmp_path / "store")
    for _ in range(40):
        path = rig.file(draw.randrange(6))
        if path.exists():
            data = bytearray(path.read_bytes())
            for _ in range(draw.randrange(1, 4)):
                data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
            path.write_bytes(data[: draw.choice([len(data), draw.randrange(len(data))])])
        assert whole(rig.store, CHAIN) <= 6
        rig.offer(*range(6))
        assert whole(rig.store, CHAIN) == 6
    rig.store.close(WAIT_S)


def test_few_files_are_kept_in_quarantine_and_pruning_removes_them(rig: Rig) -> None:
    for _ in range(4):
        for place in range(6):
            rig.file(place).write_bytes(b"x")
        assert rig.store.verify().bad == 6
        rig.offer(*range(6))
    held = [*(rig.folder / "quarantine").iterdir()]
    assert 0 < len(held) <= 16
    assert rig.store.prune() > 0
    assert not [*(rig.folder / "quarantine").iterdir()]
    assert whole(rig.store, CHAIN) == 6


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EMFILE])
@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_folder"])
def test_a_failed_write_is_named_and_writing_goes_on_once_it_can(
    rig: Rig, operation: str, number: int
) -> None:
    rig.filing.fail = failing(number, operation)
    rig.offer(6)
    counts = rig.store.counts()
    assert (counts.state, counts.faults) == ("degraded", 1)
    assert counts.drop_reasons == {"disk fault": 1}
    assert "answers are right" in counts.reason
    assert whole(rig.store, CHAIN) == 6
    assert not rig.store.offer(offered_of(CHAIN, 6))
    rig.filing.fail = well
    assert not rig.store.offer(offered_of(CHAIN, 6))
    rig.clock.now += 60.0
    rig.offer(6, 7)
    counts = rig.store.counts()
    assert (counts.state, counts.reason) == ("ready", "")
    assert "answers are right" in counts.last_fault
    assert whole(rig.store, CHAIN) == 8
    assert not [*rig.folder.rglob("*.tmp")]
    rig.reopen()
    assert whole(rig.store, CHAIN) == 8


def test_a_fault_that_stays_is_tried_ever_less_often(rig: Rig) -> None:
    rig.filing.fail = failing(errno.ENOSPC, "write")
    for _ in range(600):
        rig.clock.now += 1.0
        rig.store.offer(offered_of(CHAIN, 6))
        assert rig.store.flush(WAIT_S)
    assert 8 <= rig.store.counts().faults <= 20
    assert whole(rig.store, CHAIN) == 6


def test_a_block_the_disk_will_not_give_is_computed_again(rig: Rig) -> None:
    path = rig.file(2)
    rig.filing.fail = lambda operation, of: (
        OSError(errno.EIO, "broken") if (operation, of) == ("read", path) else None
    )
    assert whole(rig.store, CHAIN) == 2
    assert rig.store.counts().miss_reasons == {"unreadable": 1}
    assert rig.store.flush(WAIT_S)
    rig.filing.fail = well
    rig.offer(2)
    assert whole(rig.store, CHAIN) == 6


def test_a_read_only_volume_serves_what_it_has(rig: Rig) -> None:
    rig.filing.fail = READ_ONLY
    rig.offer(6)
    assert whole(rig.store, CHAIN) == 6
    counts = rig.store.counts()
    assert counts.state == "degraded"
    assert "read-only" in counts.reason
    rig.file(4).write_bytes(b"damaged")
    assert whole(rig.store, CHAIN) == 4
    assert rig.store.flush(WAIT_S)
    assert whole(rig.store, CHAIN) == 4
    for tidy in (rig.store.clear, rig.store.prune, lambda: rig.store.discard([CHAIN.name(0)])):
        with pytest.raises(FailedPrecondition, match="read-only"):
            tidy()


def test_a_store_that_cannot_be_made_lets_everybody_work_without(tmp_path: Path) -> None:
    filing, clock = FaultyFiling(), Clock()
    filing.fail = READ_ONLY
    store = open_store(tmp_path / "store", PLENTY, filing, clock=clock)
    assert store.counts().state == "degraded"
    assert store.read(CHAIN.name(0), CHAIN.span(0)) is None
    assert store.counts().miss_reasons == {"not open": 1}
    assert not store.offer(offered_of(CHAIN, 0))
    filing.fail = well
    clock.now += 60.0
    keep(store, [offered_of(CHAIN, 0)])
    assert store.counts().state == "ready"
    store.close(WAIT_S)


def test_a_folder_without_rights_is_named(tmp_path: Path) -> None:
    filing = FaultyFiling()
    filing.fail = failing(errno.EACCES, "make_folder")
    store = open_store(tmp_path / "store", PLENTY, filing)
    assert "give this user access" in store.counts().reason
    store.close(WAIT_S)


@pytest.mark.parametrize("what", ["store", "store/blocks"])
def test_a_folder_deleted_underneath_is_made_again(rig: Rig, what: str) -> None:
    shutil.rmtree(rig.folder.parent / what)
    assert whole(rig.store, CHAIN) == 0
    assert rig.store.counts().miss_reasons == {"lost": 1}
    rig.offer(0)
    rig.clock.now += 60.0
    rig.offer(0)
    assert rig.store.counts().blocks == 1
    rig.offer(*range(6))
    assert whole(rig.store, CHAIN) == 6
    assert rig.store.counts().state == "ready"
    rig.reopen()
    assert whole(rig.store, CHAIN) == 6


def test_whoever_keeps_a_folder_private_hears_whenever_it_had_to_be_made(tmp_path: Path) -> None:
    heard: list[bool] = []
    folder, clock = tmp_path / "store", Clock()
    store = open_store(folder, clock=clock, made=lambda: heard.append(folder.is_dir()))
    store.close(WAIT_S)
    store = open_store(folder, clock=clock, made=lambda: heard.append(folder.is_dir()))
    assert heard == [True], "once, when it was there already"
    shutil.rmtree(folder)
    store.offer(offered_of(CHAIN, 0))
    store.flush(WAIT_S)
    clock.now += 60.0
    store.offer(offered_of(CHAIN, 0))
    store.flush(WAIT_S)
    assert heard == [True, True]
    store.close(WAIT_S)


def test_one_file_deleted_underneath_is_one_miss(rig: Rig) -> None:
    rig.file(3).unlink()
    assert whole(rig.store, CHAIN) == 3
    assert rig.store.counts().miss_reasons == {"lost": 1}
    assert rig.store.counts().quarantined == 0
    rig.offer(3)
    assert whole(rig.store, CHAIN) == 6


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"nonsense" * 1000),
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        lambda path: path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096)),
    ],
)
def test_an_index_deleted_or_damaged_is_made_again_from_the_files(
    rig: Rig, damage: Callable[[Path], object]
) -> None:
    keep(rig.store, [offered_of(CHAIN, 6, 5)])
    known = [rig.store.find(CHAIN.name(0)), *rig.store.tails(CHAIN.name(5)), *rig.store.roots(range(8))]
    nbytes = rig.store.counts().nbytes
    assert rig.store.close(WAIT_S)
    damage(rig.folder / "index.db")
    rig.store = rig.open()
    assert rig.store.counts().nbytes == nbytes
    assert [
        rig.store.find(CHAIN.name(0)),
        *rig.store.tails(CHAIN.name(5)),
        *rig.store.roots(range(8)),
    ] == known
    assert whole(rig.store, CHAIN) == 6
    rig.reopen()
    assert whole(rig.store, CHAIN) == 6


def test_an_index_deleted_while_it_is_used_is_made_again_at_the_next_start(rig: Rig) -> None:
    for path in rig.folder.glob("index.db*"):
        path.unlink()
    rig.offer(6)
    assert whole(rig.store, CHAIN) == 7
    rig.reopen()
    assert whole(rig.store, CHAIN) == 7


def test_rows_that_lie_are_found_out(rig: Rig) -> None:
    assert rig.store.close(WAIT_S)
    with sqlite3.connect(rig.folder / "index.db") as connection:
        connection.execute("UPDATE blocks SET stored_bytes = 17 WHERE name = ?", (CHAIN.name(1),))
        connection.execute("UPDATE blocks SET name = ? WHERE name = ?", (bytes(32), CHAIN.name(2)))
    connection.close()
    rig.store = rig.open()
    assert rig.store.find(bytes(32)) is None
    assert rig.store.counts().nbytes == sum(path.stat().st_size for path in rig.folder.rglob("*.blk"))
    assert whole(rig.store, CHAIN) == 6


@pytest.mark.parametrize("change", ["length = -1", "name = 'text'", "parent = x'00'", "raw_bytes = 'many'"])
def test_rows_that_make_no_sense_are_made_again(rig: Rig, change: str) -> None:
    assert rig.store.close(WAIT_S)
    with sqlite3.connect(rig.folder / "index.db") as connection:
        connection.execute(f"UPDATE blocks SET {change} WHERE name = ?", (CHAIN.name(2),))
    connection.close()
    rig.store = rig.open()
    assert whole(rig.store, CHAIN) == 6


def test_an_index_of_another_schema_is_made_again(rig: Rig) -> None:
    assert rig.store.close(WAIT_S)
    with sqlite3.connect(rig.folder / "index.db") as connection:
        connection.execute("PRAGMA user_version = 77")
    connection.close()
    rig.store = rig.open()
    assert whole(rig.store, CHAIN) == 6


def test_an_index_that_cannot_be_written_is_named_and_nothing_is_lost(rig: Rig) -> None:
    index = rig.store._keeper.index
    assert index
    index._connection.close()
    rig.offer(6)
    counts = rig.store.counts()
    assert counts.state == "degraded"
    assert "index" in counts.reason
    rig.clock.now += 60.0
    rig.offer(6, 7)
    assert whole(rig.store, CHAIN) == 8
    assert rig.store.counts().state == "ready"
    rig.reopen()
    assert whole(rig.store, CHAIN) == 8


def test_what_is_removed_on_a_disk_that_stays_full_is_gone_all_the_same(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others fill it: the index can be brought up to that later."""

    def full(_index: Index, *_args: Any) -> None:
        raise Full("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Index, "commit", full)
        assert rig.store.discard([CHAIN.name(4)]) > 0
        assert not rig.file(4).exists()
        assert rig.store.counts().state == "degraded"
        with pytest.raises(FailedPrecondition, match="free space"):
            rig.store.discard([CHAIN.name(4)])
    rig.clock.now += 60.0
    assert whole(rig.store, CHAIN) == 4
    assert whole(rig.reopen(), CHAIN) == 4


def test_what_is_removed_takes_what_was_set_aside_along(rig: Rig) -> None:
    """It may be of the same text."""
    rig.file(3).write_bytes(b"damaged")
    rig.store.verify()
    assert [*(rig.folder / "quarantine").iterdir()]
    rig.store.discard([CHAIN.name(2)])
    assert [*(rig.folder / "quarantine").iterdir()] == []


class Full(sqlite3.OperationalError):
    sqlite_errorname = "SQLITE_FULL"


@pytest.mark.parametrize("way", ["clear", "discard"])
def test_what_frees_a_full_disk_needs_no_room_on_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Nothing can be written, no row of the index either, as long as all blocks are there."""
    commit = Index.commit

    def commit_if_there_is_room(index: Index, *args: Any) -> None:
        if len([*rig.folder.rglob("*.blk")]) >= 6:
            raise Full("database or disk is full")
        commit(index, *args)

    monkeypatch.setattr(Index, "commit", commit_if_there_is_room)
    rig.offer(6)
    assert rig.store.counts().state == "degraded"
    with pytest.raises(FailedPrecondition, match="disk is full"):
        rig.store.prune()  # nothing to remove
    assert "free space" in rig.store.counts().reason
    freed = rig.store.clear() if way == "clear" else rig.store.discard([CHAIN.name(0)])
    assert freed > 0
    assert [*rig.folder.rglob("*.blk")] == []
    assert whole(rig.store, CHAIN) == 0
    assert rig.store.counts().state == "ready"
    rig.offer(0, 1)
    assert whole(rig.reopen(), CHAIN) == 2


def test_an_index_damaged_while_it_is_used_is_made_again(rig: Rig) -> None:
    path = rig.folder / "index.db"
    path.write_bytes(b"\xff" * path.stat().st_size)
    for _ in range(4):
        rig.offer(6, 7)
        rig.clock.now += 120.0
    assert whole(rig.store, CHAIN) == 8
    assert rig.store.counts().state == "ready"
    rig.reopen()
    assert whole(rig.store, CHAIN) == 8


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_was_set_changes_neither_order_nor_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    limits = replace(PLENTY, size=1_700_000, hourly_writes=2_000_000)
    used, unused = chain_of(range(64)), chain_of(range(100, 164))
    store = open_store(tmp_path / "store", limits)
    for chain in (used, unused):
        keep(store, [offered_of(chain, place, nbytes=80_000) for place in range(6)])
    spent = store.counts().bytes_written
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump)
    assert whole(store, used) == 6
    assert store.close(WAIT_S)
    store = open_store(tmp_path / "store", limits)
    other = chain_of(range(200, 264))
    for place in range(8):
        store.offer(offered_of(other, place, nbytes=80_000))
    assert store.flush(WAIT_S)
    assert whole(store, used) == 6
    assert whole(store, unused) < 6
    for place in range(8):
        store.offer(offered_of(chain_of(range(300, 364)), place, nbytes=80_000))
    for place in range(8):
        store.offer(offered_of(chain_of(range(400, 464)), place, nbytes=80_000))
    assert store.flush(WAIT_S)
    assert spent + store.counts().bytes_written <= limits.hourly_writes
    assert store.counts().drop_reasons["write budget"] > 0
    store.close(WAIT_S)


def test_a_block_that_cannot_be_written_down_does_not_end_the_writer(rig: Rig) -> None:
    strange = offered_of(CHAIN, 6)
    rig.store.offer(replace(strange, content=replace(strange.content, meta={"what": object()})))  # type: ignore[dict-item]
    assert rig.store.flush(WAIT_S)
    counts = rig.store.counts()
    assert (counts.state, counts.drop_reasons) == ("degraded", {"disk fault": 1})
    assert "TypeError" in counts.reason
    rig.clock.now += 60.0
    rig.offer(6, 7)
    assert whole(rig.store, CHAIN) == 8
    assert rig.store.counts().state == "ready"


def test_what_went_wrong_is_in_the_log_without_any_text(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mtplxd.store"):
        rig.file(2).write_bytes(b"damaged")
        assert whole(rig.store, CHAIN) == 2
        rig.filing.fail = failing(errno.ENOSPC, "write")
        rig.offer(6)
    assert [record.getMessage() for record in caplog.records] == [
        "a stored block of 8 tokens is not to be had (quarantined): it is computed again",
        "the prompt store cannot be written (broken): free space on its volume; answers are right but not kept",
    ]


def test_a_failed_read_leaves_the_store_as_it_was(rig: Rig) -> None:
    rig.file(0).write_bytes(b"")
    for _ in range(5):
        assert rig.store.read(CHAIN.name(0), CHAIN.span(0)) is None
    rig.offer(0)
    assert whole(rig.store, CHAIN) == 6
    content = content_of(CHAIN.name(0))
    assert content.nbytes == 520
