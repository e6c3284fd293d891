"""What a thread reads lies over what it read before, and over nobody else's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from mtplxd.store import filing
from mtplxd.store.filing import RealFiling, Scratch


def made(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_files_of_any_size_are_read_one_over_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filing, "SCRATCH", 100)
    scratch, files = Scratch(), RealFiling()
    for number, size in enumerate([10, 0, 100, 101, 7, 5000, 100]):
        data = bytes([number]) * size
        assert bytes(files.read_over(made(tmp_path, str(number), data), scratch)) == data


def test_what_is_read_takes_no_fresh_memory_unless_it_is_large(tmp_path: Path) -> None:
    scratch, files = Scratch(), RealFiling()
    first = files.read_over(made(tmp_path, "a", b"a" * 9), scratch)
    files.read_over(made(tmp_path, "b", b"b" * 5), scratch)
    assert bytes(first) == b"bbbbbaaaa"


def test_threads_do_not_read_over_each_other(tmp_path: Path) -> None:
    scratch, files = Scratch(), RealFiling()
    mine = files.read_over(made(tmp_path, "a", b"a" * 9), scratch)
    other = threading.Thread(
        target=lambda: files.read_over(made(tmp_path, "b", b"b" * 9), scratch), name="other"
    )
    other.start()
    other.join()
    assert bytes(mine) == b"a" * 9


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(made(tmp_path, "a", b"a"))
    with pytest.raises(OSError, match="symbolic links"):
        RealFiling().read_over(tmp_path / "link", Scratch())
