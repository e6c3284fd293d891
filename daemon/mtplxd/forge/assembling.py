"""Puts a pack's folder together from what finished steps left: hard links where the disk has them, and one manifest.

It can be made anew at any time and holds nothing of its own.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mtplxd.files import sync_tree, write_atomically
from mtplxd.forge.describing import describe_pack
from mtplxd.forge.digest import digest_of
from mtplxd.forge.work import Work
from mtplxd.packs.manifest import FILE_NAME, write_manifest
from mtplxd.packs.pack import read_pack

LAYERS = ("convert", "extract", "train")
"""Whose products lie in a pack; a later one's file takes the place of an earlier one's."""


def assemble_pack(work: Work, *, anew: bool = False) -> Path:
    """The pack's folder as far as it is made; the one that is there where it is of the same. Raises OSError, DataLoss.

    One that is there may be in memory, and its files must stay what they were when they were loaded. `anew` leaves
    nothing in it that a killed writer may have put there.
    """
    folder, mark = work.run.pack, work.run.pack.with_suffix(".made")
    wanted = digest_of(
        [{step: work.product(step) for step in LAYERS}, work.result("calibrate"), work.result("train")]
    )
    if not anew and folder.is_dir() and mark.is_file() and mark.read_text() == wanted:
        return folder
    making = work.run.folder / f".{folder.name}"
    mark.unlink(missing_ok=True)
    for old in (making, folder):
        shutil.rmtree(old, ignore_errors=True)
    making.mkdir()
    for step in LAYERS:
        for name in work.product(step):
            put_file(work.place(step) / name, making / name)
    manifest = describe_pack(read_pack(making, work.recipe.name), work.state, work.recipe)
    write_manifest(making, manifest)
    if calibration := work.result("calibrate"):
        work.parts.record_calibration(making, calibration)
    sync_tree(making)
    making.rename(folder)
    write_atomically(mark, wanted.encode())
    return folder


def put_file(source: Path, target: Path) -> None:
    """Gives a file another name, which replaces what bore it; a copy where the disk has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if target.name == FILE_NAME:  # it is written to
        shutil.copyfile(source, target)
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
