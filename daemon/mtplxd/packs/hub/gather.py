"""Where each file of a repository is to be had: in the pack it replaces, in Hugging Face's cache, or from the Hub.

A copy that is here already counts only when its hash is right; it is used where it lies. Several files are checked or
fetched at once, while the caller's thread reports.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from mtplxd.errors import Cancelled, Unavailable
from mtplxd.packs.hub.cache import find_content
from mtplxd.packs.hub.record import PullRecord, unchanged
from mtplxd.packs.hub.repository import RemoteFile, Repository
from mtplxd.packs.hub.transfer import arrived, hash_of, transfer
from mtplxd.packs.landing import check_space
from mtplxd.packs.manifest import FILE_NAME as MANIFEST

T = TypeVar("T")
AT_ONCE = 4
TICK_S = 0.2


@dataclass(frozen=True)
class Old:
    """The pack that an earlier pull left, and its record."""

    folder: Path
    record: PullRecord


class Counter:
    """Bytes that are settled so far, of `total`; told to `report` by the thread that calls `tick`."""

    def __init__(self, total: int, report: Callable[[int, int], None]) -> None:
        self._total, self._report = total, report
        self._done, self._told = 0, -1
        self._stopped = False
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Raises Cancelled after `stop`, so that threads end."""
        if self._stopped:
            raise Cancelled("another file could not be had")
        with self._lock:
            self._done += count

    def tick(self) -> None:
        done = min(max(self._done, 0), self._total)
        if done != self._told:
            self._told = done
            self._report(done, self._total)

    def stop(self) -> None:
        self._stopped = True


def gather(
    repository: Repository,
    files: Sequence[RemoteFile],
    arrivals: Path,
    cache: Path,
    old: Old | None,
    report: Callable[[int, int], None],
    timeout_s: float,
) -> dict[str, Path]:
    """Where the bytes of each file lie, by name; in `arrivals` those that had to be fetched.

    Raises ResourceExhausted before the first byte when the disk has too little space, and what `transfer` raises.
    """
    counter = Counter(sum(file.size for file in files), report)
    here = _run(counter, [partial(_find, repository, file, cache, old, counter) for file in files])
    places = {file.name: place for file, place in zip(files, here, strict=True) if place}
    missing = {file.etag: file for file in files if file.name not in places}
    if missing and not repository.endpoint:
        damaged = next(iter(missing.values())).name
        fix = "unset HF_HUB_OFFLINE and try again"
        raise Unavailable("a file in the cache is damaged", f"{damaged} of {repository.name}", fix)
    check_space(sum(file.size - arrived(file, arrivals) for file in missing.values()), arrivals)
    wanted = list(missing.values())
    came = _run(
        counter,
        [partial(transfer, repository, file, arrivals, counter.add, timeout_s) for file in wanted],
    )
    by_etag = {file.etag: place for file, place in zip(wanted, came, strict=True)}
    return places | {file.name: by_etag[file.etag] for file in files if file.name not in places}


def put(place: Path, target: Path, *, ours: Iterable[Path]) -> None:
    """Gives a file its name in a pack's folder: by a link of its own where it is below `ours`, else by one that
    leads to the place. The contract file is copied, for records are written to it. Raises OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.name == MANIFEST:
        shutil.copyfile(place, target)
    elif any(place.is_relative_to(folder) for folder in ours):
        try:
            os.link(place, target)
        except OSError:  # a file system without hard links
            shutil.copyfile(place, target)
    else:
        target.symlink_to(place)


def _find(
    repository: Repository, file: RemoteFile, cache: Path, old: Old | None, counter: Counter
) -> Path | None:
    """A copy that is here already; None where there is none with the right hash."""
    kept = _kept(file, old) if old else None
    if kept:
        counter.add(file.size)
        return kept
    place = find_content(repository.name, file.name, file.etag, file.size, cache)
    if place is None:
        return None
    try:
        if hash_of(place, file.etag, counter.add) == file.etag:
            return place
    except OSError:
        return None
    counter.add(-file.size)
    return None


def _kept(file: RemoteFile, old: Old) -> Path | None:
    """The old pack's copy, as it was when its hash was checked. The contract file may have been written since."""
    pulled = old.record.files.get(file.name)
    same = pulled is not None and pulled.etag == file.etag and file.name != MANIFEST
    return (
        Path(os.path.realpath(old.folder / file.name))
        if same and unchanged(old.folder, old.record, file.name)
        else None
    )


def _run(counter: Counter, works: Sequence[Callable[[], T]]) -> list[T]:
    """Runs works on a few threads, and gives their results in order. Raises what the first that fails raises."""
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gather")
    futures = [pool.submit(work) for work in works]
    pending = set(futures)
    try:
        while pending:
            done, pending = wait(pending, TICK_S, FIRST_COMPLETED)
            counter.tick()
            for future in done:
                future.result()
    except BaseException:
        counter.stop()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [future.result() for future in futures]
