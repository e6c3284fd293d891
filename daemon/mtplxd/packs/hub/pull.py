"""`mtplx pull org/name`: a published pack from the Hub, whole, under its own name among the home's packs.

A child process fetches and checks it in a hidden folder; one rename puts it in its place. So a pull that is killed at
any point leaves no pack, or the old one, and the next goes on with what has arrived.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from mtplxd.errors import DataLoss, FailedPrecondition
from mtplxd.files import locked
from mtplxd.packs.hub.apart import FINISHED, fetch_apart
from mtplxd.packs.hub.names import RepositoryName
from mtplxd.packs.hub.record import read_record
from mtplxd.packs.landing import PARTIAL, OnProgress, disk_errors, move_in, trash_of
from mtplxd.packs.manifest import FORMAT, Manifest, read_manifest, write_manifest
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.paths import Home, resolve_hugging_face


def pull_repository(
    name: RepositoryName, home: Home, progress: OnProgress, cancelled: Callable[[], bool]
) -> Pack:
    """The pack of a repository at its revision, fetched as far as it is not here.

    Blocks; concurrent pulls of one name wait for each other. Raises NotFound, FailedPrecondition (gated, no model in
    it, something else in its place), Unavailable (no network), ResourceExhausted (disk), DataLoss, Cancelled.
    """
    home.create()
    target, work = home.packs / name.folder, home.packs / f"{PARTIAL}{name.folder}"
    progress("check", 0, 1)
    with locked(home.run / f"pull-{name.folder}.lock", cancelled) as lock, disk_errors(home.packs):
        _check_replaceable(name, target)
        work.mkdir(parents=True, exist_ok=True)
        made = fetch_apart(
            name,
            work,
            target,
            resolve_hugging_face(),
            lock=lock,
            on_bytes=lambda done, total: progress("fetch", done, total),
            cancelled=cancelled,
        )
        if made:
            progress("finish", 0, 1)
            _check_readable(name, work / FINISHED)
            _keep_verification(target, work / FINISHED)
            move_in(work / FINISHED, target)
        for done in (work, trash_of(target)):
            shutil.rmtree(done, ignore_errors=True)
        progress("finish", 1, 1)
        return read_pack(target, str(name))


def _check_replaceable(name: RepositoryName, target: Path) -> None:
    """Only what an earlier pull of this name made may be replaced; anything else in its place is the user's."""
    if not target.exists():
        return
    try:
        record = read_record(target)
        if record and record.repository == name:
            return
    except DataLoss:
        pass
    fix = "move it away, then pull again"
    raise FailedPrecondition("something else is where this pack belongs", target, fix)


def _check_readable(name: RepositoryName, folder: Path) -> None:
    """Whole as it was published is not yet whole: no pack is listed that cannot be read."""
    try:
        read_pack(folder)
    except DataLoss as error:
        where = str(error.value).replace(f"{folder}/", "")
        raise FailedPrecondition(
            error.what, f"{where} of {name}", "it was published so, tell its publisher"
        ) from None


def _keep_verification(old: Path, new: Path) -> None:
    """Takes a verification that was made here along; whether it holds for the new files, `tiers` asks of them."""
    try:
        ours, theirs = read_manifest(old), read_manifest(new)
    except DataLoss:
        return
    if ours and ours.verification and not (theirs and theirs.verification):
        theirs = theirs or Manifest({})
        block = {"format": FORMAT, "verification": ours.verification}
        write_manifest(new, theirs.with_ours(**{**block, **theirs.ours, "verification": ours.verification}))
