"""Brings what memory and index know of the store in line with the files that are there, as nothing else is true.

Runs at each start and after each fault. Judges files by their names, sizes and headers; numbers are checked when read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mtplxd.store import blockfile
from mtplxd.store.filing import Listed
from mtplxd.store.keeper import Keeper
from mtplxd.store.places import UNFINISHED, name_of
from mtplxd.store.shelf import Entry, root_of

FIRST_READ = 1 << 14
"""Bytes that hold nearly every header."""


@dataclass(slots=True)
class Reconciled:
    """Blocks found that memory did not have, known ones without a file, files of no use that were removed, and damaged
    ones that were set aside. `unread` are files that the disk would not give, `freed` the bytes of what was removed."""

    found: int = 0
    lost: int = 0
    reclaimed: int = 0
    set_aside: int = 0
    unread: int = 0
    freed: int = 0


@dataclass(slots=True)
class _Scan:
    files: dict[bytes, int] = field(default_factory=dict)
    reclaimed: int = 0
    freed: int = 0
    strays: int = 0


def reconcile(keeper: Keeper) -> Reconciled:
    """Needs the keeper's turn. Raises OSError and sqlite3.Error where the disk does not let it finish."""
    scan = _scan(keeper)
    keeper.strays = scan.strays
    result = Reconciled(reclaimed=scan.reclaimed, freed=scan.freed)
    fresh = keeper.index is not None and keeper.index.fresh
    known = {entry.name: entry for entry in keeper.entries()}
    result.lost = keeper.forget([name for name in known if name not in scan.files], "lost")
    for name, size in scan.files.items():
        entry = known.get(name)
        if entry is None or entry.kept.stored_bytes != size:
            _take_in(keeper, name, size, result, latest=not fresh)
    if not result.unread:
        unreachable = keeper.unreachable()
        result.freed += keeper.take_away(unreachable, "lost")
        result.reclaimed += len(unreachable)
    keeper.quarantined_bytes = sum(each.nbytes for each in keeper.filing.listing(keeper.places.quarantine))
    keeper.make_room(0)
    keeper.commit()
    return result


def look_over(keeper: Keeper) -> None:
    """The same for memory alone where nothing can be written: no file and no index is touched. Needs the keeper's turn;
    raises OSError."""
    scan, result = _scan(keeper, tidy=False), Reconciled()
    known = {entry.name: entry for entry in keeper.entries()}
    keeper.forget([name for name in known if name not in scan.files], "lost")
    for name, size in scan.files.items():
        entry = known.get(name)
        if entry is None or entry.kept.stored_bytes != size:
            _take_in(keeper, name, size, result, latest=True, tidy=False)
    keeper.forget(keeper.unreachable(), "lost")
    keeper.opened = True


def _scan(keeper: Keeper, *, tidy: bool = True) -> _Scan:
    """All files below the folder of blocks; removes unfinished ones and those at a wrong place if it may."""
    scan, places = _Scan(), keeper.places
    for folder in keeper.filing.listing(places.blocks):
        if not folder.folder:
            scan.strays += folder.nbytes
            continue
        for listed in keeper.filing.listing(places.blocks / folder.name):
            name = name_of(listed.name)
            if name is not None and not listed.folder and not listed.other and folder.name == name[:1].hex():
                scan.files[name] = listed.nbytes
            elif tidy and (name is not None or _is_unfinished(listed)):
                keeper.filing.remove(places.blocks / folder.name / listed.name)
                scan.reclaimed += 1
                scan.freed += listed.nbytes
            else:
                scan.strays += listed.nbytes
    return scan


def _is_unfinished(listed: Listed) -> bool:
    return listed.name.startswith(".") and listed.name.endswith(UNFINISHED) and not listed.folder


def _take_in(
    keeper: Keeper, name: bytes, size: int, result: Reconciled, *, latest: bool, tidy: bool = True
) -> None:
    """Adds the block of a file, unless it is another's or damaged; those are put out of the way if that may be."""
    path = keeper.places.block(name)
    try:
        data = keeper.filing.read(path, FIRST_READ)
        if (whole := blockfile.header_bytes(data)) > len(data):
            data = keeper.filing.read(path, whole)
        header = blockfile.read_header(data)
        if header.name != name:
            raise blockfile.Damaged("another block's file")
    except (blockfile.Foreign, blockfile.Damaged) as fault:
        if not tidy:
            keeper.forget([name], "lost" if isinstance(fault, blockfile.Foreign) else "quarantined")
            return
        _put_away(keeper, name, size, result, fault)
    except OSError:
        result.unread += 1
    else:
        root = root_of(header.parent, header.identity, header.tokens)
        keeper.take_in(Entry(header.kept(size), 0, header.packed, root), latest=latest)
        result.found += 1


def _put_away(keeper: Keeper, name: bytes, size: int, result: Reconciled, fault: Exception) -> None:
    if isinstance(fault, blockfile.Foreign):
        keeper.take_away([name], "lost")
        result.reclaimed += 1
        result.freed += size
    else:
        keeper.forget([name], "quarantined")
        keeper.set_aside(name)
        result.set_aside += 1
