"""What lies in the store's folder decides what is known: leftovers and what others wrote go, whole blocks stay."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mtplxd.store import blockfile, keys
from mtplxd.store.disk import DiskStore
from mtplxd.store.keeper import Keeper
from support.block_store import PLENTY, WAIT_S, FaultyFiling, chain_of, keep, offered_of, open_store, whole

CHAIN = chain_of(range(80))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A store of eight blocks that nobody has open."""
    store = open_store(tmp_path / "store")
    keep(store, [offered_of(CHAIN, place) for place in range(8)])
    assert store.close(WAIT_S)
    return tmp_path / "store"


def file_of(folder: Path, name: bytes) -> Path:
    return folder / "blocks" / name[:1].hex() / f"{name.hex()}.blk"


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "blocks").rglob("*") if path.is_file()}


def opened(folder: Path) -> DiskStore:
    store = open_store(folder)
    assert store.counts().state == "ready"
    return store


def test_unfinished_files_are_removed(folder: Path) -> None:
    left = folder / "blocks" / "00"
    left.mkdir(exist_ok=True)
    (left / f".{'00' * 32}.tmp").write_bytes(b"half a block")
    (file_of(folder, CHAIN.name(0)).parent / f".{CHAIN.name(0).hex()}.tmp").write_bytes(b"")
    store = opened(folder)
    assert not [name for name in files(folder) if name.endswith(".tmp")]
    assert store.counts().reclaimed == 2
    assert whole(store, CHAIN) == 8
    assert store.prune() == 0
    store.close(WAIT_S)


def test_files_that_the_index_lacks_are_found(folder: Path) -> None:
    with sqlite3.connect(folder / "index.db") as connection:
        connection.execute("DELETE FROM blocks WHERE name IN (?, ?)", (CHAIN.name(3), CHAIN.name(7)))
    connection.close()
    store = opened(folder)
    assert whole(store, CHAIN) == 8
    store.close(WAIT_S)
    with sqlite3.connect(folder / "index.db") as connection:
        assert connection.execute("SELECT count(*) FROM blocks").fetchone() == (8,)
    connection.close()


def test_rows_without_a_file_are_forgotten_with_what_follows(folder: Path) -> None:
    file_of(folder, CHAIN.name(4)).unlink()
    store = opened(folder)
    assert whole(store, CHAIN) == 4
    assert store.why(CHAIN.name(4)) == store.why(CHAIN.name(6)) == "lost"
    assert store.counts().blocks == len(files(folder)) == 4
    assert store.prune() == 0
    store.close(WAIT_S)


def test_what_follows_stays_where_the_disk_would_not_give_what_is_before(folder: Path) -> None:
    (folder / "index.db").unlink()
    filing, name = FaultyFiling(), CHAIN.name(4)
    path = file_of(folder, name)
    filing.fail = lambda operation, of: OSError(5, "broken") if (operation, of) == ("read", path) else None
    store = open_store(folder, PLENTY, filing)
    assert whole(store, CHAIN) == 4
    assert len(files(folder)) == 8
    assert store.close(WAIT_S)
    store = opened(folder)
    assert whole(store, CHAIN) == 8
    store.close(WAIT_S)


@pytest.mark.parametrize("data", [b"", b"somebody's", b"MTPLXKV\n\x63\0\0\0" + bytes(300)])
def test_foreign_files_under_names_of_ours_are_reclaimed(folder: Path, data: bytes) -> None:
    name = bytes(range(32))
    file_of(folder, name).parent.mkdir(exist_ok=True)
    file_of(folder, name).write_bytes(data)
    store = opened(folder)
    assert not file_of(folder, name).exists()
    assert store.counts().reclaimed == 1
    assert whole(store, CHAIN) == 8
    store.close(WAIT_S)


def test_a_block_in_the_wrong_folder_is_reclaimed(folder: Path) -> None:
    path = file_of(folder, CHAIN.name(0))
    other = folder / "blocks" / ("00" if path.parent.name != "00" else "01")
    other.mkdir(exist_ok=True)
    (other / path.name).write_bytes(path.read_bytes())
    store = opened(folder)
    assert not (other / path.name).exists()
    assert whole(store, CHAIN) == 8
    store.close(WAIT_S)


def test_a_damaged_header_is_set_aside(folder: Path) -> None:
    path = file_of(folder, CHAIN.name(5))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    (folder / "index.db").unlink()
    store = opened(folder)
    assert (folder / "quarantine" / path.name).exists()
    assert store.counts().quarantined == 1
    assert whole(store, CHAIN) == 5
    store.close(WAIT_S)


def test_files_of_others_beside_ours_stay_but_count(folder: Path) -> None:
    (folder / "blocks" / "README").write_bytes(bytes(700))
    (folder / "blocks" / CHAIN.name(0)[:1].hex() / "notes.txt").write_bytes(bytes(300))
    store = opened(folder)
    assert store._keeper.strays == 1000
    assert (folder / "blocks" / "README").exists()
    assert whole(store, CHAIN) == 8
    store.close(WAIT_S)


def test_links_are_never_followed(folder: Path, tmp_path: Path) -> None:
    path = file_of(folder, CHAIN.name(6))
    (tmp_path / "elsewhere").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    store = opened(folder)
    assert whole(store, CHAIN) == 6
    assert (tmp_path / "elsewhere").exists()
    assert not path.is_symlink()
    store.close(WAIT_S)


@pytest.mark.parametrize("lost_index", [False, True])
def test_blocks_of_an_older_layout_are_never_given_and_reclaimed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lost_index: bool
) -> None:
    if lost_index:
        (folder / "index.db").unlink()
    newer = keys.LAYOUT + "0"
    for module in (keys, blockfile):
        monkeypatch.setattr(module, "LAYOUT", newer)
    monkeypatch.setattr("mtplxd.store.keeper.FORMAT", f"{blockfile.VERSION} {newer}")
    store = opened(folder)
    assert store.counts().blocks == 0
    assert files(folder) == set()
    assert store.counts().reclaimed == 8
    assert store.read(CHAIN.name(0), CHAIN.span(0)) is None
    chain = chain_of(range(80))
    assert chain.name(0) != CHAIN.name(0)
    keep(store, [offered_of(chain, 0)])
    assert whole(store, chain) == 1
    store.close(WAIT_S)


def test_a_store_over_its_size_is_brought_down_at_open(folder: Path) -> None:
    store = open_store(folder)
    long = chain_of(range(500, 580))
    keep(store, [offered_of(long, place, nbytes=200_000) for place in range(8)])
    assert store.close(WAIT_S)
    limits = replace(PLENTY, size=1_400_000)
    store = open_store(folder, limits)
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert total <= limits.size
    assert store.counts().evicted > 0
    assert whole(store, long) > 0
    store.close(WAIT_S)


def test_blocks_whose_rows_were_lost_are_the_latest_used(folder: Path) -> None:
    with sqlite3.connect(folder / "index.db") as connection:
        connection.execute("DELETE FROM blocks WHERE name = ?", (CHAIN.name(7),))
    connection.close()
    store = opened(folder)
    uses = {entry.name: entry.used for entry in store._keeper.entries()}
    assert max(uses, key=lambda name: uses[name]) == CHAIN.name(7)
    store.close(WAIT_S)


def test_opening_a_sound_store_writes_no_block_and_reads_none(folder: Path) -> None:
    filing = FaultyFiling()
    touched: list[tuple[str, str]] = []
    filing.fail = lambda operation, path: touched.append((operation, path.suffix))  # type: ignore[func-returns-value]
    store = open_store(folder, PLENTY, filing)
    assert store.counts().blocks == 8
    assert {operation for operation, suffix in touched if suffix == ".blk"} == set()
    store.close(WAIT_S)


def test_reading_goes_on_while_the_folder_is_looked_through(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def looking(_keeper: Keeper) -> None:
        seen.append(whole(store, CHAIN))
        raise OSError(5, "enough")

    monkeypatch.setattr("mtplxd.store.writer.reconcile", looking)
    real = DiskStore.__init__
    store = DiskStore.__new__(DiskStore)
    real(store, folder, PLENTY)
    store.flush(WAIT_S)
    assert seen == [8]
    store.close(WAIT_S)
