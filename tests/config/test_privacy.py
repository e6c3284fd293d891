"""A folder of prompts is its owner's alone, and macOS neither backs it up nor indexes it.

`tmutil` is played by a program that keeps exclusions as the real one does: by the folder, and it tells of each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mtplxd.platform.privacy import NEVER_INDEX, Backups, Privacy, keep_private, look

_TMUTIL = """#!{python}
import os, sys
verb, path = sys.argv[1], sys.argv[2]
kept = {kept!r}
known = open(kept).read().splitlines() if os.path.exists(kept) else []
if not os.path.exists(path):
    sys.exit(f"{{path}}: Error (100002) while attempting to change exclusion setting.")
if verb == "addexclusion":
    open(kept, "a").write(path + "\\n")
elif verb == "isexcluded":
    print("[Excluded]   " if path in known else "[Included]   ", path)
else:
    sys.exit(64)
"""


@pytest.fixture
def mac(tmp_path: Path) -> Backups:
    program, kept = tmp_path / "tmutil", tmp_path / "exclusions"
    program.write_text(_TMUTIL.format(python=sys.executable, kept=str(kept)))
    program.chmod(0o700)
    return Backups("darwin", str(program))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "my store"
    made.mkdir(mode=0o755)
    return made


def exclusions(mac: Backups) -> list[str]:
    return (Path(mac.tmutil).parent / "exclusions").read_text().splitlines()


def test_on_a_mac_it_is_closed_and_left_out_of_both(mac: Backups, folder: Path) -> None:
    assert look(folder, mac) == Privacy(False, False, False)
    assert look(folder, mac).troubles == (
        "others may read it", "Time Machine copies it", "Spotlight indexes it"
    )  # fmt: skip
    assert keep_private(folder, mac) == Privacy(True, True, True)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / NEVER_INDEX).stat().st_mode & 0o777 == 0o600
    assert exclusions(mac) == [str(folder)]


def test_it_is_done_once(mac: Backups, folder: Path) -> None:
    keep_private(folder, mac)
    keep_private(folder, mac)
    assert exclusions(mac) == [str(folder)]


def test_a_tmutil_that_fails_is_told(folder: Path) -> None:
    found = keep_private(folder, Backups("darwin", "/no/such/tmutil"))
    assert found == Privacy(True, False, True)
    assert found.troubles == ("Time Machine copies it",)


def test_elsewhere_it_is_only_closed_and_nothing_is_added(folder: Path) -> None:
    assert keep_private(folder, Backups("linux", "/no/such/tmutil")) == Privacy(True)
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_missing_is_not_made(mac: Backups, tmp_path: Path) -> None:
    assert keep_private(tmp_path / "none", mac).troubles == ()
    assert not (tmp_path / "none").exists()
