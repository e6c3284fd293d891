"""The file of the named conversations: how it is opened, made private and durable, brought to this version, set aside.

SQLite with `synchronous=FULL`: what a transaction committed survives a kill and a power cut. What the rows mean is
`sessions`'.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from pathlib import Path

from mtplxd.errors import DataLoss, FailedPrecondition, MtplxError, ResourceExhausted
from mtplxd.paths import make_private
from mtplxd.store.health import is_full

APPLICATION = 0x6D74_706C
"""SQLite's mark of whose file it is."""
STEPS: tuple[str, ...] = (
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        created REAL NOT NULL,
        updated REAL NOT NULL
    );
    CREATE TABLE messages (
        session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        place INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        role TEXT NOT NULL,
        content TEXT NOT NULL,
        PRIMARY KEY (session, place)
    );
    CREATE TABLE turns (
        session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        turn INTEGER NOT NULL,
        model TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        sampler TEXT NOT NULL,
        finish_reason TEXT NOT NULL,
        stop_origin TEXT NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        shared INTEGER NOT NULL,
        ids BLOB NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (session, turn)
    );
    """,
    "ALTER TABLE sessions ADD COLUMN forked_from TEXT NOT NULL DEFAULT '';",
)
"""From nothing to this version, a step a version. A step that was released never changes."""
VERSION = len(STEPS)

_PRAGMAS = (
    "journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON",
    "foreign_keys = ON", "secure_delete = ON",
)  # fmt: skip
_SIDES = ("", "-wal", "-shm")


def open_file(path: Path, steps: tuple[str, ...] = STEPS) -> sqlite3.Connection:
    """The file, made where it is missing, at this version, for the owner alone.

    Raises DataLoss where it is damaged or somebody else's, FailedPrecondition where a newer mtplxd made it or it
    cannot be opened, ResourceExhausted on a full disk.
    """
    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)  # SQLite gives the files beside it the same
        file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise explain(error, path) from error
    try:
        for pragma in _PRAGMAS:
            file.execute(f"PRAGMA {pragma}")
        _check(file, path)
        _migrate(file, path, steps)
    except sqlite3.Error as error:
        file.close()
        raise explain(error, path) from error
    except MtplxError:
        file.close()
        raise
    return file


def read_file(path: Path) -> sqlite3.Connection:
    """The file on a volume where nothing can be written, as it lies there. Raises FailedPrecondition where its latest
    turns still lie in its journal, from which only a writer gets them, or where it is of an older version."""
    journal = path.with_name(f"{path.name}-wal")
    if journal.exists() and journal.stat().st_size:
        what, fix = (
            "the sessions' latest turns are not in their file yet",
            "its volume is read-only: make it writable",
        )
        raise FailedPrecondition(what, journal, fix)
    where = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        file = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
        try:
            _check(file, path)
            [version] = file.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                what, fix = (
                    "the sessions' file is of another version",
                    "its volume is read-only: make it writable",
                )
                raise FailedPrecondition(what, f"{path}, version {version} instead of {VERSION}", fix)
        except BaseException:
            file.close()
            raise
    except sqlite3.Error as error:
        raise explain(error, path) from error
    return file


def is_read_only(error: MtplxError) -> bool:
    """Whether a file could not be opened as its volume is read-only."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EROFS


def set_aside(path: Path) -> Path:
    """Gives a damaged file another name, so that a new one can be made; where it is now. Raises OSError."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for side in _SIDES:
        if (old := path.with_name(path.name + side)).exists():
            old.replace(aside.with_name(aside.name + side))
    return aside


def remove_file(path: Path) -> int:
    """Removes it, those that were set aside too; the bytes it freed. Raises OSError."""
    freed = 0
    for old in path.parent.glob(f"{path.name}*"):
        size = old.stat().st_size
        old.unlink()
        freed += size
    return freed


def explain(error: OSError | sqlite3.Error, path: Path) -> MtplxError:
    """What a fault of the disk or of the file means to whoever uses it."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if is_full(error):
        return ResourceExhausted("the disk is full", path, "free some space")
    if name in ("SQLITE_CORRUPT", "SQLITE_NOTADB") or name.startswith("SQLITE_CORRUPT"):
        return DataLoss("the sessions' file is damaged", path, "it is set aside, restore it from a backup")
    what = (error.strerror if isinstance(error, OSError) else None) or error
    fix = (
        "its volume is read-only" if getattr(error, "errno", None) == errno.EROFS else "check disk and folder"
    )
    return FailedPrecondition("cannot use the sessions' file", f"{path}: {what}", fix)


def _check(file: sqlite3.Connection, path: Path) -> None:
    [found] = file.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise DataLoss("the sessions' file is damaged", path, "it is set aside, restore it from a backup")
    [application] = file.execute("PRAGMA application_id").fetchone()
    [tables] = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and tables:
        raise DataLoss("the sessions' file is another program's", path, "it is set aside")


def _migrate(file: sqlite3.Connection, path: Path, steps: tuple[str, ...]) -> None:
    [version] = file.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        what = "the sessions' file was made by a newer mtplxd"
        raise FailedPrecondition(what, f"{path}, version {version} of {len(steps)}", "update mtplxd")
    for number in range(version, len(steps)):
        file.executescript(
            f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION}; {steps[number]};"
            f"PRAGMA user_version = {number + 1}; COMMIT;"
        )
