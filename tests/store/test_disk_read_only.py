"""A store on a volume that cannot be written serves what lies there, says why it keeps nothing, and touches nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mtplxd.store.disk import DiskStore
from mtplxd.store.filing import only_holder
from mtplxd.store.places import Places
from support.block_store import (
    PLENTY,
    READ_ONLY,
    WAIT_S,
    Clock,
    FaultyFiling,
    chain_of,
    content_of,
    keep,
    offered_of,
    open_store,
    same,
    whole,
)
from support.waiting import until

CHAIN = chain_of(range(64))
TAIL = offered_of(CHAIN, 6, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six blocks and a tail, of a store that was closed."""
    store = open_store(tmp_path / "store", PLENTY, FaultyFiling())
    keep(store, [*(offered_of(CHAIN, place) for place in range(6)), TAIL])
    assert store.close(WAIT_S)
    return tmp_path / "store"


def open_read_only(folder: Path, clock: Clock | None = None) -> tuple[DiskStore, FaultyFiling]:
    filing = FaultyFiling()
    filing.fail = READ_ONLY
    return open_store(folder, PLENTY, filing, clock=clock or Clock()), filing


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def serves_all(store: DiskStore) -> bool:
    return whole(store, CHAIN) == 6 and same(store.read(TAIL.name, TAIL.tokens), content_of(TAIL.name))


def test_it_serves_what_it_has_at_once_and_writes_nothing(folder: Path) -> None:
    before = listing(folder)
    store, _ = open_read_only(folder)
    assert serves_all(store)
    counts = store.counts()
    assert (counts.state, counts.blocks, counts.hits) == ("degraded", 7, 7)
    assert "read-only" in counts.reason
    assert not store.offer(offered_of(CHAIN, 6))
    until(lambda: store.why(CHAIN.name(7)) == "new")
    assert store.verify().blocks == 7
    store.close(WAIT_S)
    assert listing(folder) == before


@pytest.mark.parametrize("damage", ["gone", "rubbish", "of another version"])
def test_without_an_index_it_goes_by_the_files(folder: Path, damage: str) -> None:
    index = folder / "index.db"
    if damage == "gone":
        index.unlink()
    else:
        data = index.read_bytes()
        index.write_bytes(b"x" * 5000 if damage == "rubbish" else data[:60] + b"\0\0\0\x63" + data[64:])
    before = listing(folder)
    store, _ = open_read_only(folder)
    until(lambda: store.counts().blocks == 7)
    assert serves_all(store)
    store.close(WAIT_S)
    assert listing(folder) == before


def test_what_the_index_had_in_its_journal_alone_is_found_by_the_files(tmp_path: Path) -> None:
    """As after a kill; and an index that names files which are gone is believed in nothing."""
    store = open_store(tmp_path / "store", PLENTY, FaultyFiling())
    keep(store, [offered_of(CHAIN, place) for place in range(6)])
    copy = Path(shutil.copytree(tmp_path / "store", tmp_path / "copy"))
    assert store.close(WAIT_S)
    Places(copy).block(CHAIN.name(4)).unlink()
    other, _ = open_read_only(copy)
    until(lambda: whole(other, CHAIN) == 4 and other.find(CHAIN.name(5)) is None)
    assert other.counts().blocks == 4
    other.close(WAIT_S)


def test_damaged_and_foreign_files_stay_where_they_are_and_are_not_served(folder: Path) -> None:
    (folder / "index.db").unlink()
    places = Places(folder)
    places.block(CHAIN.name(3)).write_bytes(b"damaged")
    places.block(TAIL.name).write_bytes(b"MTPLXBLK" + bytes(200))
    before = listing(folder)
    store, _ = open_read_only(folder)
    until(lambda: store.counts().blocks == 3)
    assert whole(store, CHAIN) == 3
    store.close(WAIT_S)
    assert listing(folder) == before


def test_once_it_can_be_written_it_is_as_ever(folder: Path) -> None:
    clock = Clock()
    (folder / "index.db").unlink()
    store, filing = open_read_only(folder, clock)
    until(lambda: store.counts().blocks == 7)
    filing.fail = lambda _operation, _path: None
    clock.now += 100.0
    keep(store, [offered_of(CHAIN, 6)])
    assert store.counts().state == "ready"
    assert store.close(WAIT_S)
    again = open_store(folder, PLENTY, FaultyFiling())
    assert whole(again, CHAIN) == 7
    assert again.close(WAIT_S)


def test_a_folder_that_another_store_writes_is_left_to_it(folder: Path) -> None:
    with only_holder(Places(folder).lock):
        store = open_store(folder, PLENTY, FaultyFiling())
        assert store.counts().state == "degraded"
        assert store.find(CHAIN.name(0)) is None
        store.close(WAIT_S)
