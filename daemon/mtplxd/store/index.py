"""The index of the blocks on disk, in SQLite: what opening the store would otherwise have to read out of every file.

It can be thrown away and made again from the files; then only the order of use and the write budget are lost. It may
miss the latest commits after a power cut, never blocks: `reconcile` finds their files. Decides nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mtplxd.store.blocks import Kept
from mtplxd.store.filing import FILE_MODE
from mtplxd.store.shelf import Entry

SCHEMA = 1
_TABLES = """
CREATE TABLE blocks (
    name BLOB PRIMARY KEY, identity BLOB NOT NULL, parent BLOB NOT NULL, length INTEGER NOT NULL,
    tail INTEGER NOT NULL, grade INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, stored_bytes INTEGER NOT NULL,
    used INTEGER NOT NULL, packed INTEGER NOT NULL, root BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_NAME_BYTES = 32


class Index:
    """Rows of blocks and a few notes. Raises sqlite3.Error; whoever has one takes turns at it.

    `fresh` says that there was none that could be used, so that it is empty now.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fresh = False
        try:
            self._connection = self._open()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and not _is_foreign(error):
                raise
            self._start_over()

    def load(self, *, thorough: bool = False) -> tuple[list[Entry], dict[str, str]]:
        """All blocks and notes; none, and `fresh`, where they are damaged. `thorough` looks at all of the file."""
        try:
            if thorough:
                [verdict] = self._connection.execute("PRAGMA quick_check(1)").fetchone()
                if verdict != "ok":
                    raise ValueError(verdict)
            notes = dict(self._connection.execute("SELECT key, value FROM notes"))
            return [_entry(row) for row in self._connection.execute("SELECT * FROM blocks")], notes
        except (sqlite3.DatabaseError, ValueError):
            self._connection.close()
            self._start_over()
            return [], {}

    def commit(
        self,
        put: Iterable[Entry] = (),
        gone: Iterable[bytes] = (),
        used: Iterable[tuple[bytes, int]] = (),
        notes: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Takes rows away, puts rows, sets when blocks were used and puts notes: all of it or nothing."""
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM blocks WHERE name = ?", ((name,) for name in gone))
            rows = (_row(entry) for entry in put)
            connection.executemany("INSERT OR REPLACE INTO blocks VALUES (?,?,?,?,?,?,?,?,?,?,?)", rows)
            connection.executemany(
                "UPDATE blocks SET used = ? WHERE name = ?", ((tick, name) for name, tick in used)
            )
            connection.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", notes)

    def clear(self) -> None:
        """Takes all rows away and gives their space back."""
        with self._connection as connection:
            connection.execute("DELETE FROM blocks")
        self._connection.execute("VACUUM")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Lets go of the file."""
        self._connection.close()

    def _start_over(self) -> None:
        for end in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.path}{end}")
        self.fresh = True
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE))
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=0.0)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # one store a folder: no shared memory file
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 64")
            connection.execute("PRAGMA journal_size_limit = 262144")
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, SCHEMA):
                raise sqlite3.DatabaseError(f"schema {version}")
            if version == 0:
                self.fresh = True
                connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def read_only(path: Path) -> tuple[list[Entry], dict[str, str]]:
    """What an index on a volume that cannot be written says, as `Index.load`; nothing where it cannot be read. What was
    not yet moved from its journal is missing."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as file:
            if file.execute("PRAGMA user_version").fetchone() != (SCHEMA,):
                return [], {}
            notes = dict(file.execute("SELECT key, value FROM notes"))
            return [_entry(row) for row in file.execute("SELECT * FROM blocks")], notes
    except (sqlite3.Error, ValueError):
        return [], {}


def spent_text(ages: Iterable[tuple[float, int]]) -> str:
    """What was written within the last hour, as a note."""
    return json.dumps([[round(age, 3), nbytes] for age, nbytes in ages])


def parse_spent(text: str | None) -> list[tuple[float, int]]:
    """The same read back; nothing where it makes no sense."""
    try:
        return [(float(age), int(nbytes)) for age, nbytes in json.loads(text or "[]")]
    except (ValueError, TypeError):
        return []


def _is_foreign(error: sqlite3.OperationalError) -> bool:
    """Tables that are there already under no version of ours."""
    return "already exists" in str(error)


def _row(entry: Entry) -> tuple[object, ...]:
    kept = entry.kept
    return (
        kept.name, kept.identity, kept.parent, kept.length, int(kept.tail), kept.grade, kept.raw_bytes,
        kept.stored_bytes, entry.used, entry.packed, entry.root,
    )  # fmt: skip


def _entry(row: tuple[Any, ...]) -> Entry:
    """A block of its row; raises ValueError for one that cannot be."""
    name, identity, parent, length, tail, grade, raw, stored, used, packed, root = row
    if not (type(name) is type(identity) is type(parent) is type(root) is bytes):
        raise ValueError("a name that is no bytes")
    if not (len(name) == len(identity) == len(parent) == _NAME_BYTES):
        raise ValueError("a name of another length")
    for number in (length, tail, grade, raw, stored, used, packed):
        if type(number) is not int or number < 0:
            raise ValueError("a number that is none")
    return Entry(Kept(name, identity, parent, length, bool(tail), grade, raw, stored), used, packed, root)
