"""What takes space on the disk: each folder once, links not followed, with or without a daemon and a home."""

from __future__ import annotations

import os
from pathlib import Path

from mtplx_client.disk_use import measure_use
from mtplxd.paths import Home

MIB = 1 << 20


def fill(path: Path, size: int = MIB) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


def test_each_folder_and_each_pack_is_counted(mtplx, home: Path) -> None:
    fill(home / "packs" / "one" / "w", 2 * MIB)
    fill(home / "packs" / "two" / "w")
    fill(home / "store" / "blocks" / "a", 3 * MIB)
    fill(home / "logs" / "mtplxd.log")
    fill(home / "runs" / "r" / "x")
    fill(home / "tuning.json")
    found = mtplx("du", "--json").document
    sizes = {name: found[name] // MIB for name in ("packs", "store", "logs", "runs", "other")}
    assert sizes == {"packs": 3, "store": 3, "logs": 1, "runs": 1, "other": 1}
    assert found["total"] == sum(found[name] for name in sizes)
    assert [(pack["name"], pack["bytes"] // MIB) for pack in found["each_pack"]] == [("one", 2), ("two", 1)]
    shown = mtplx("du").out
    assert "one" in shown
    assert str(home) in shown


def test_a_file_with_two_names_counts_once_and_a_link_leads_nowhere(home: Path) -> None:
    weights = fill(home / "packs" / "one" / "w", 2 * MIB)
    (home / "packs" / "two").mkdir()
    os.link(weights, home / "packs" / "two" / "w")
    (home / "runs").mkdir()
    (home / "runs" / "away").symlink_to(home / "packs")
    found = measure_use(Home(home))
    assert found.packs // MIB == 2
    assert found.runs < MIB


def test_a_home_that_is_not_there_takes_nothing(mtplx, home: Path) -> None:
    found = mtplx("du", "--home", f"{home}/none", "--json").document
    assert found["total"] == 0
    assert found["free"] > 0
