"""The process that a pull from the Hub starts: it makes a whole folder of a repository's files, or says why not.

It works in one folder and never renames it into place: `pull` does. The token is the library's matter, from the
environment or its own file: it is in no argument and no line of output.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtplxd.errors import DataLoss, FailedPrecondition, MtplxError, Unavailable
from mtplxd.packs.folder import Folder, LocalFolder
from mtplxd.packs.hub.cache import ETAG, find_snapshot, list_snapshot
from mtplxd.packs.hub.gather import Old, gather, put
from mtplxd.packs.hub.headers import HubFolder
from mtplxd.packs.hub.names import RepositoryName, parse_repository
from mtplxd.packs.hub.plan import choose_wanted
from mtplxd.packs.hub.record import PullRecord, check_whole, describe, read_record, unchanged, write_record
from mtplxd.packs.hub.repository import RemoteFile, Repository, host_of, open_repository
from mtplxd.packs.hub.transfer import hash_of
from mtplxd.packs.landing import disk_errors
from mtplxd.packs.workers import end_with_parent, say, say_error
from mtplxd.paths import HuggingFace, resolve_hugging_face

ARRIVALS, FINISHED = "arrivals", "pack"
"""Folders inside the one it works in: files by their hash, and the pack when it is whole."""

PLAN_BUDGET = 200_000_000
"""Bytes that configs and indexes may have."""

Report = Callable[[int, int], None]
OnCommit = Callable[[str], None]
"""Takes the commit that a revision stands for, before anything of it is fetched."""


@dataclass(frozen=True)
class Offer:
    """A repository, and the folder in which the small files that say what is wanted can be read."""

    repository: Repository
    folder: Folder


def make_pack(
    name: RepositoryName,
    work: Path,
    standing: Path,
    hugging_face: HuggingFace,
    report: Report,
    timeout_s: float,
    on_commit: OnCommit = lambda _: None,
) -> bool:
    """Makes `work/pack`; False, and nothing made, where the pack `standing` already is what it would become.

    `report` takes bytes settled and bytes in all. Raises the Hub's errors, ResourceExhausted, DataLoss, OSError.
    """
    old = _find_old(name, standing)
    offer = _look_up(name, old, hugging_face)
    if offer is None:
        return False
    repository, arrivals, pack = offer.repository, work / ARRIVALS, work / FINISHED
    on_commit(repository.commit)
    if old and old.record.commit == repository.commit and is_whole(old):
        return False
    files = [repository.files[file] for file in choose_wanted(offer.folder, repository.files)]
    shutil.rmtree(pack, ignore_errors=True)
    arrivals.mkdir(parents=True, exist_ok=True)
    places = gather(repository, files, arrivals, hugging_face.cache, old, report, timeout_s)
    for file in files:
        put(places[file.name], pack / file.name, ours=(arrivals, Path(os.path.realpath(standing))))
    pulled = {file.name: describe(pack / file.name, file.etag) for file in files}
    write_record(pack, PullRecord(str(name), repository.commit, _host(repository), pulled))
    return True


def _find_old(name: RepositoryName, standing: Path) -> Old | None:
    try:
        record = read_record(standing)
    except DataLoss:
        return None
    return Old(standing, record) if record and record.repository == name else None


def is_whole(old: Old) -> bool:
    """Whether every file still has the bytes that were pulled; reads those whose stamp has changed."""
    try:
        check_whole(old.folder, old.record)
        return all(
            unchanged(old.folder, old.record, name) or hash_of(old.folder / name, pulled.etag) == pulled.etag
            for name, pulled in old.record.files.items()
        )
    except (DataLoss, OSError):
        return False


def _look_up(name: RepositoryName, old: Old | None, hugging_face: HuggingFace) -> Offer | None:
    """What there is to fetch; None where the standing pack is all there can be without asking anybody."""
    pinned = old is not None and name.commit == old.record.commit
    if old and (pinned or hugging_face.offline) and is_whole(old):
        return None
    if hugging_face.offline:
        return _from_cache(name, hugging_face)
    repository = open_repository(name, hugging_face)
    return Offer(repository, HubFolder(repository, PLAN_BUDGET))


def _from_cache(name: RepositoryName, hugging_face: HuggingFace) -> Offer:
    """The cache's snapshot as a repository, for when the Hub may not be asked."""
    snapshot = find_snapshot(name, hugging_face.cache)
    if snapshot is None:
        raise Unavailable("the Hub is switched off", f"HF_HUB_OFFLINE, {name}", "unset it to pull this model")
    files = {file: _cached(file, place) for file, place in list_snapshot(snapshot).items()}
    try:
        choose_wanted(LocalFolder(snapshot), files)
    except FailedPrecondition as error:
        what = f"the cache holds only a part of it, {error.what}"
        raise Unavailable(what, error.value, "unset HF_HUB_OFFLINE and try again") from None
    return Offer(Repository(name, snapshot.name, files, endpoint=""), LocalFolder(snapshot))


def _host(repository: Repository) -> str:
    return host_of(repository.endpoint) if repository.endpoint else "cache"


def _cached(file: str, place: Path) -> RemoteFile:
    """A blob's name is its hash; a copy without one is taken as it is."""
    etag = place.name if ETAG.fullmatch(place.name) else hash_of(place, "0" * 64)
    return RemoteFile(file, place.stat().st_size, etag if len(etag) == 64 else None, etag)


def _report(done: int, total: int) -> None:
    say({"done": done, "total": total})


def _say_commit(commit: str) -> None:
    say({"commit": commit})


def main(arguments: list[str]) -> int:
    """Entry of the child: name, the folder to work in, the place of the pack. Says its progress and its end."""
    name, work, standing = parse_repository(arguments[0]), Path(arguments[1]), Path(arguments[2])
    end_with_parent()  # what has arrived waits for the next try
    from huggingface_hub import constants

    try:
        with disk_errors(work):
            hugging_face, timeout_s = resolve_hugging_face(), float(constants.HF_HUB_DOWNLOAD_TIMEOUT)
            made = make_pack(name, work, standing, hugging_face, _report, timeout_s, _say_commit)
    except MtplxError as error:
        say_error(error)
        return 1
    say({"made": made})
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # threads of files that nobody waits for any more end here
