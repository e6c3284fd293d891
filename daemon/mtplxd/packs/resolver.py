"""THE resolver: which folder a model's name means, for every command alike.

A path always means that path; a plain name is a pack of the home; `org/name` is the pack that was pulled under that
name, else a snapshot in Hugging Face's cache, used in place. It fetches nothing and asks no network.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
from pathlib import Path

from mtplxd.errors import FailedPrecondition, InvalidArgument, MtplxError, NotFound
from mtplxd.packs.catalogue import SOURCES
from mtplxd.packs.hub.cache import find_snapshot
from mtplxd.packs.hub.names import find_repository
from mtplxd.packs.hub.record import check_whole, read_record
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.tiers import check_format
from mtplxd.paths import Home, HuggingFace, absolute, resolve_hugging_face

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,254}")
_SHOWN = 100
_PATH_STARTS = ("/", "./", "../", "~")
TRASH = ".trash-"


def resolve(name: str, home: Home, hugging_face: HuggingFace | None = None) -> Pack:
    """The pack that a name, a folder's path or `org/name` means.

    Raises NotFound with near names and the way to fetch it, DataLoss for a damaged one, FailedPrecondition
    for one that needs a newer engine or that claims a catalogue's name for other weights.
    """
    pack = find_pack(name, home, hugging_face)
    check_format(pack)
    return pack


def find_pack(name: str, home: Home, hugging_face: HuggingFace | None = None) -> Pack:
    """The same for who only looks: a pack that needs a newer engine is found too."""
    if not name.strip():
        raise InvalidArgument(
            "empty model name", None, "give a pack's name, a folder's path or org/name", field="model"
        )
    return _find(name, home, hugging_face)


def anchor(name: str) -> str:
    """What a client sends for a name its user typed: folders as absolute paths, other names as they are."""
    if name.startswith(_PATH_STARTS) or name in (".", "..") or ("/" in name and Path(name).is_dir()):
        return str(absolute(name))
    return name


def list_packs(home: Home) -> list[Pack]:
    """Every whole pack of the home by name. Damaged folders are in `scan_packs`."""
    return scan_packs(home)[0]


def scan_packs(home: Home) -> tuple[list[Pack], dict[str, MtplxError]]:
    """Every whole pack of the home, and what is wrong with each other folder by its name; unfinished ones are hidden,
    and neither."""
    whole: list[Pack] = []
    damaged: dict[str, MtplxError] = {}
    for folder in sorted(home.packs.iterdir()) if home.packs.is_dir() else []:
        if not is_pack_name(folder.name) or not folder.is_dir():
            continue
        try:
            whole.append(_open(folder))
        except MtplxError as error:
            damaged[folder.name] = error
    return whole, damaged


def remove_pack(name: str, home: Home) -> int:
    """Deletes a pack of the home, damaged ones too, and gives the bytes freed.

    Only packs of the home can be removed: folders given by path and Hugging Face's cache belong to others, and a
    pack that uses files of the cache leaves them there.
    """
    check_removable(name)
    folder = _folder_of(name, home)
    if not folder.is_dir() and find_repository(name):
        fix = "Hugging Face's cache is cleared with `hf cache rm`"
        raise FailedPrecondition("only packs in the home are removed", name, fix)
    if not folder.is_dir():
        raise _not_found(name, home, "see `mtplx ls`")
    freed = sum(Path(inner, file).lstat().st_size for inner, _, files in os.walk(folder) for file in files)
    for old in home.packs.glob(f"{TRASH}*"):  # of removals that were cut short
        shutil.rmtree(old, ignore_errors=True)
    trash = home.packs / f"{TRASH}{folder.name}"
    try:
        folder.rename(trash)
        shutil.rmtree(trash)
    except OSError as error:
        raise FailedPrecondition(
            "cannot remove a pack", folder, error.strerror or "check the disk"
        ) from error
    return freed


def check_removable(name: str) -> None:
    """Raises FailedPrecondition for what is not named as a pack of the home, but as a path."""
    if not is_pack_name(name) and not find_repository(name):
        shown = name if name.isprintable() and len(name) <= _SHOWN else f"{name[:_SHOWN]!a}…"
        raise FailedPrecondition(
            "only packs in the home are removed", shown, "give a name that `mtplx ls` shows"
        )


def is_pack_name(name: str) -> bool:
    """Whether a pack may have this name; dotted folders are work in progress and never packs."""
    return _NAME.fullmatch(name) is not None


def find_folder(name: str, home: Home) -> Path | None:
    """The folder that a name means without Hugging Face's cache: that of a path, or of a pack of the home; None for
    neither. What is in it, and whether there is one at a path, nobody has looked at yet.
    """
    if _is_path(name):
        return absolute(name)
    named = find_repository(name) or is_pack_name(name)
    return folder if named and (folder := _folder_of(name, home)).is_dir() else None


def _is_path(name: str) -> bool:
    return name.startswith(_PATH_STARTS) or name in (".", "..")


def _find(name: str, home: Home, hugging_face: HuggingFace | None) -> Pack:
    if folder := find_folder(name, home):
        return read_pack(folder) if _is_path(name) else _open(folder)
    repository = find_repository(name)
    if repository:
        snapshot = find_snapshot(repository, (hugging_face or resolve_hugging_face()).cache)
        if snapshot:
            return read_pack(snapshot, name)
    raise _not_found(name, home, "give a folder's path, or see `mtplx ls`")


def _folder_of(name: str, home: Home) -> Path:
    repository = find_repository(name)
    return home.packs / (repository.folder if repository else name)


def _open(folder: Path) -> Pack:
    """A pack of the home. A name of the catalogue means the catalogue's weights, whatever folder bears it, and what
    was pulled from the Hub is whole as it was pulled, under the name it was pulled by.
    """
    record = read_record(folder)
    if record and record.repository and record.repository.folder == folder.name:
        check_whole(folder, record)
        return read_pack(folder, record.name)
    pack = read_pack(folder, folder.name)
    source = SOURCES.get(pack.name)
    recorded = pack.manifest and pack.manifest.body_fingerprint
    if source and recorded != source.body_fingerprint:
        raise FailedPrecondition(
            "this folder does not hold the weights its name stands for",
            pack.path,
            f"`mtplx pull {pack.name}` mends it, or rename the folder",
        )
    return pack


def _not_found(name: str, home: Home, otherwise: str) -> NotFound:
    shown = name if name.isprintable() and len(name) <= _SHOWN else f"{name[:_SHOWN]!a}…"
    known = {*(pack.name for pack in list_packs(home)), *SOURCES}
    if name in SOURCES or find_repository(name):
        return NotFound("no such model here", shown, f"fetch it with `mtplx pull {name}`")
    near = difflib.get_close_matches(shown.lower(), sorted(known), n=1, cutoff=0.5)
    return NotFound("no such model", shown, f"did you mean {near[0]}?" if near else otherwise)
