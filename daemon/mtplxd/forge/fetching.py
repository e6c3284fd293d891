"""The first step of a build: the files it needs, whole and on this machine, and what each of them is.

A folder and a pack of the home are used where they lie. A repository is pinned to a commit before its first byte
arrives, and stays so however often the run is resumed. What a checkpoint is worth is `probing`'s.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtplxd.errors import Cancelled, DataLoss, NotFound
from mtplxd.files import locked, write_atomically
from mtplxd.forge.licence import licence_of
from mtplxd.forge.pacing import IsCancelled, Tell
from mtplxd.forge.places import list_model
from mtplxd.packs.folder import LocalFolder, file_stamp
from mtplxd.packs.hub.apart import FINISHED, fetch_apart
from mtplxd.packs.hub.cache import is_snapshot
from mtplxd.packs.hub.fetch import ARRIVALS, is_whole
from mtplxd.packs.hub.gather import Old
from mtplxd.packs.hub.names import RepositoryName, find_repository
from mtplxd.packs.hub.plan import choose_wanted
from mtplxd.packs.hub.record import PullRecord, check_whole, read_record, unchanged
from mtplxd.packs.hub.transfer import hash_of
from mtplxd.packs.landing import disk_errors
from mtplxd.packs.manifest import FILE_NAME as MANIFEST
from mtplxd.packs.manifest import read_manifest, table
from mtplxd.packs.remembered import remembered
from mtplxd.packs.resolver import find_folder, find_pack
from mtplxd.paths import Home, HuggingFace

STAGE = "fetch"
PIN = "pin.json"
Origin = tuple[str | None, str | None]
"""A repository or another place that publishes, and what it calls the revision."""
_SHA256 = "0" * 64
"""Stands for any name of this kind where only the kind is asked for."""


@dataclass(frozen=True)
class Source:
    """Where a build's files are: `files` are those it needs, by name with the sha256 of their bytes.

    `repo` and `revision` say what was published where, as far as that is known: a repository of the Hub and a commit.
    `bytes` is of all the files.
    """

    path: Path
    repo: str | None
    revision: str | None
    files: dict[str, str]
    licence: str | None
    bytes: int

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {**asdict(self), "path": str(self.path)}


def fetch_source(
    ref: str, folder: Path, home: Home, hugging_face: HuggingFace, tell: Tell, cancelled: IsCancelled
) -> Source:
    """The files of a folder, a pack of the home or `org/name[@revision]`; `folder` is where a repository's are put.

    Done again, it fetches what is not there yet, of the same commit. Raises UnsupportedSource where there is no model
    in it, NotFound, FailedPrecondition (gated), Unavailable (no network), ResourceExhausted (disk), DataLoss,
    Cancelled.
    """
    tell(STAGE, 0, 1, ref)
    place = find_folder(ref, home)
    repository = None if place else find_repository(ref)
    if repository:
        with disk_errors(folder):
            return _fetch(repository, folder, hugging_face, tell, cancelled)
    # a name that means nothing here raises, and says what may have been meant
    return _use_in_place(place or find_pack(ref, home, hugging_face).path, tell, cancelled)


def _use_in_place(folder: Path, tell: Tell, cancelled: IsCancelled) -> Source:
    files, record = list_model(folder), read_record(folder)
    if record:
        check_whole(folder, record)
    wanted = choose_wanted(LocalFolder(folder), files)
    return _describe(folder, wanted, record, _origin(folder, record), tell, cancelled)


def _fetch(
    name: RepositoryName, folder: Path, hugging_face: HuggingFace, tell: Tell, cancelled: IsCancelled
) -> Source:
    folder.mkdir(parents=True, exist_ok=True)
    pack = folder / FINISHED
    with locked(folder / "fetch.lock", cancelled) as lock:
        commit = _read_pin(folder, name)
        if commit is None or not _stands(pack, commit):
            shutil.rmtree(pack, ignore_errors=True)
            with _gone_if_missing(name, commit):
                fetch_apart(
                    RepositoryName(name.id, commit) if commit else name,
                    folder,
                    pack,
                    hugging_face,
                    lock=lock,
                    on_bytes=lambda done, total: tell(STAGE, done, total, str(name)),
                    cancelled=cancelled,
                    on_commit=lambda found: _write_pin(folder, name, found),
                )
        shutil.rmtree(folder / ARRIVALS, ignore_errors=True)
        record = _read_back(pack)
        return _describe(pack, sorted(record.files), record, (name.id, record.commit), tell, cancelled)


def _stands(pack: Path, commit: str) -> bool:
    """Whether all that was fetched of this commit is still there, byte for byte."""
    try:
        record = read_record(pack)
    except DataLoss:
        return False
    return record is not None and record.commit == commit and is_whole(Old(pack, record))


def _read_back(pack: Path) -> PullRecord:
    record = read_record(pack)
    if record is None:
        raise DataLoss("what was fetched is not there", pack, "begin the build anew")
    check_whole(pack, record)
    return record


def _read_pin(folder: Path, name: RepositoryName) -> str | None:
    """The commit that an earlier try was pinned to; None without one, or of another source."""
    try:
        pin = json.loads((folder / PIN).read_bytes())
        commit = str(pin["commit"]) if pin["source"] == str(name) else ""
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return commit or None


def _write_pin(folder: Path, name: RepositoryName, commit: str) -> None:
    pin = {"source": str(name), "commit": commit}
    write_atomically(folder / PIN, json.dumps(pin).encode() + b"\n")


@contextmanager
def _gone_if_missing(name: RepositoryName, commit: str | None) -> Iterator[None]:
    """What a pinned build cannot find any more was there once: the remedy is another build, not another name."""
    try:
        yield
    except NotFound as error:
        if commit is None:
            raise
        where = f"{name.id} at {commit[:12]}, {error.what}"
        raise NotFound(
            "what this build began with is gone from the Hub", where, "begin a new build"
        ) from None


def _origin(folder: Path, record: PullRecord | None) -> Origin:
    """What was published where, of a folder that was not fetched for this build."""
    if record and record.repository:
        return record.repository.id, record.commit
    if is_snapshot(folder):
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/", 1), folder.name
    manifest = read_manifest(folder)
    stated = table(manifest.fields, "forge_provenance") if manifest else {}
    repo, revision = stated.get("source_repo"), stated.get("source_sha")
    return (str(repo), str(revision) if revision else None) if repo else (None, None)


def _describe(
    folder: Path,
    names: Sequence[str],
    record: PullRecord | None,
    origin: Origin,
    tell: Tell,
    cancelled: IsCancelled,
) -> Source:
    """Reads the files whose hash nobody knows yet."""
    sizes = {name: (folder / name).stat().st_size for name in names}
    total, done = sum(sizes.values()), 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        tell(STAGE, done, total, "checking")
        if cancelled():
            raise Cancelled("stopped before all files were read", folder.name)

    files = {}
    for name in names:
        end = done + sizes[name]
        files[name] = _known_sha256(folder, name, record) or _sha256(folder / name, count)
        count(end - done)
    repo, revision = origin
    return Source(folder, repo, revision, files, licence_of(LocalFolder(folder)), total)


def _known_sha256(folder: Path, name: str, record: PullRecord | None) -> str | None:
    """What was found when the file arrived; the contract file may have been written since."""
    pulled = record.files.get(name) if record else None
    if record is None or pulled is None or len(pulled.etag) != len(_SHA256) or name == MANIFEST:
        return None
    return pulled.etag if unchanged(folder, record, name) else None


def _sha256(path: Path, on_bytes: Callable[[int], None]) -> str:
    """Read once, and remembered while the file's stamp stays. Raises DataLoss."""
    try:
        return remembered("sha256", {path: file_stamp(path)}, "", lambda: hash_of(path, _SHA256, on_bytes))
    except OSError as error:
        raise DataLoss("cannot read a file", path, error.strerror or "check the disk") from error
