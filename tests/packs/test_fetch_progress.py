"""The bytes that have arrived are counted while pip moves its files and folders about."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mtplxd.packs import fetch


def test_a_folder_that_vanishes_while_it_is_counted_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.whl").write_bytes(b"x" * 7)
    nested = tmp_path / "tmp" / "pip-unpack"
    nested.mkdir(parents=True)
    (nested / "b.whl").write_bytes(b"x" * 9)
    size = fetch._size

    def remove_the_rest(path: Path) -> int:
        shutil.rmtree(tmp_path / "tmp", ignore_errors=True)
        return size(path)

    monkeypatch.setattr(fetch, "_size", remove_the_rest)
    assert fetch._arrived(tmp_path) == 7


def test_the_largest_file_counts_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "deep" / "large").write_bytes(b"x" * 5)
    assert fetch._arrived(tmp_path) == 5
    assert fetch._arrived(tmp_path / "absent") == 0
