"""Named conversations on disk: each turn is kept whole or not at all, and is durable once `commit` returns.

Safe from any thread; every call touches the disk. Who may answer in a session, and when, is `claims`'.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss, FailedPrecondition, InvalidArgument, MtplxError, NotFound
from mtplxd.store.conversation import (
    Conversation,
    Message,
    Numbers,
    Past,
    Summary,
    Turn,
    check_name,
    pack_ids,
    shared,
    unpack_ids,
)
from mtplxd.store.session_file import explain, is_read_only, open_file, read_file, remove_file, set_aside

log = logging.getLogger(__name__)

_NUMBERS = tuple(spec.name for spec in fields(Numbers))
_SUMMARY = """
    SELECT s.id, s.name, s.created, s.updated, s.forked_from,
        coalesce(last.model, ''),
        coalesce((SELECT t.fingerprint FROM turns t WHERE t.session = s.id AND t.model = last.model
            AND t.fingerprint <> '' ORDER BY t.turn DESC LIMIT 1), ''),
        coalesce(last.shared + length(last.ids) / 4, 0),
        (SELECT count(*) FROM turns t WHERE t.session = s.id),
        (SELECT count(*) FROM messages m WHERE m.session = s.id),
        (SELECT coalesce(sum(length(CAST(m.content AS BLOB))), 0) FROM messages m WHERE m.session = s.id)
        + (SELECT coalesce(sum(length(t.ids) + length(t.sampler)), 0) FROM turns t WHERE t.session = s.id)
    FROM sessions s LEFT JOIN turns last ON last.session = s.id
        AND last.turn = (SELECT max(t.turn) FROM turns t WHERE t.session = s.id)
"""


class Changed(FailedPrecondition):
    """A turn goes on from what is no longer there."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "the session is no longer as it was", name, "it was changed or removed: say it again"
        )


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """How many there are and the bytes of their file; `reason` says what went wrong last, and is empty when all is
    well."""

    sessions: int = 0
    nbytes: int = 0
    reason: str = ""


class Sessions:
    """The sessions of one daemon, in the file `path`, which is made by the first turn that is kept.

    `made` is called whenever the file had to be made.
    """

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.time, made: Callable[[], object] = lambda: None
    ) -> None:
        self._path, self._clock, self._made = path, clock, made
        self._lock = threading.RLock()
        self._file: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._counts = SessionCounts()
        self._aside = self._gone = ""

    @property
    def counts(self) -> SessionCounts:
        """As of the last call that looked; waits for nothing."""
        return self._counts

    def read(self, name: str) -> Conversation | None:
        """A session with all that was said, None where there is none. Raises what `open_file` raises."""
        with self._reading() as file:
            if file is None:
                return None
            row = file.execute(f"{_SUMMARY} WHERE s.name = ?", (name,)).fetchone()
            return None if row is None else _conversation(file, row)

    def summaries(self) -> list[Summary]:
        """All sessions, the latest used first. Raises what `open_file` raises."""
        with self._reading() as file:
            if file is None:
                return []
            rows = file.execute(f"{_SUMMARY} ORDER BY s.updated DESC, s.id DESC").fetchall()
            return [_summary(row) for row in rows]

    def chains(self, names: Iterable[str] | None = None) -> dict[str, list[tuple[int, ...]]]:
        """By name, of these sessions or of all, the ids of every turn; those that a later turn of the session begins
        with are left out."""
        with self._reading() as file:
            if file is None:
                return {}
            rows = file.execute("SELECT name, id FROM sessions").fetchall()
            asked = {name for name, _ in rows} if names is None else {*names}
            return {
                name: list(_longest(chain for chain, _, _ in _chains(file, key)))
                for name, key in rows
                if name in asked
            }

    def commit(self, before: Conversation, turn: Turn, fork: str = "") -> int:
        """Keeps a turn that goes on from `before`, durable on return; its number. With `fork` it goes on in a copy of
        that name, and `before` stays as it is.

        Raises Changed where the session is no longer as it was, and what `open_file` raises; then nothing
        is kept.
        """
        with self._writing() as file:
            key = self._forked(file, before, fork) if fork else self._standing(file, before)
            number = before.summary.turns + 1
            _add_turn(file, key, number, before, turn)
            now = self._clock()
            file.execute("UPDATE sessions SET updated = ? WHERE id = ?", (now, key))
        return number

    def rename(self, name: str, to: str) -> Summary:
        """Gives a session another name. Raises NotFound, InvalidArgument for a name that is taken or none."""
        to = check_name(to, "to")
        with self._writing() as file:
            [key] = _known(file, name)
            if file.execute("SELECT 1 FROM sessions WHERE name = ? AND id <> ?", (to, key)).fetchone():
                raise InvalidArgument("there is a session of that name", to, "give another", field="to")
            file.execute("UPDATE sessions SET name = ? WHERE id = ?", (to, key))
            return _summary(file.execute(f"{_SUMMARY} WHERE s.id = ?", (key,)).fetchone())

    def remove(self, name: str) -> None:
        """Removes a session; what it said is overwritten on the disk. Raises NotFound."""
        with self._writing() as file:
            [key] = _known(file, name)
            file.execute("DELETE FROM sessions WHERE id = ?", (key,))
        self._forget_journal()

    def clear(self) -> tuple[int, int]:
        """Removes all sessions, and the file; how many they were and the bytes they took."""
        with self._lock:
            try:
                count = len(self.summaries())
            except MtplxError:  # damaged, or a newer one's: it goes as well
                count = 0
            self.close()
            try:
                freed = remove_file(self._path)
            except OSError as error:
                raise explain(error, self._path) from error
            self._counts = SessionCounts()
            self._aside = self._gone = ""
            return count, freed

    def look(self) -> None:
        """Opens the file where there is one, so that `counts` are true. Raises nothing."""
        with contextlib.suppress(MtplxError), self._reading():
            pass

    def close(self) -> None:
        """Lets go of the file; a later call opens it again."""
        with self._lock:
            file, self._file, self._inode = self._file, None, None
            if file is not None:
                file.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """The file, None where there is none: nothing is made by looking. On a read-only volume it is as it lies there,
        and `counts` say so."""
        with self._lock, self._noting(), contextlib.ExitStack() as ending:
            if self._file is None and not _has_content(self._path):
                self._counts = SessionCounts(reason=self._trouble)
                yield None
                return
            try:
                file, reason = self._opened(), self._trouble
            except FailedPrecondition as error:
                if not is_read_only(error):
                    raise
                file, reason = ending.enter_context(contextlib.closing(read_file(self._path))), str(error)
            self._count(file, reason)
            yield file

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it, or nothing."""
        with self._lock, self._noting():
            file = self._opened()
            file.execute("BEGIN IMMEDIATE")
            try:
                yield file
                file.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    if file.in_transaction:
                        file.execute("ROLLBACK")
                raise
            self._gone = ""
            self._count(file, self._trouble)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Says in `counts` what went wrong, and lets go of a file that failed."""
        try:
            yield
        except sqlite3.Error as error:
            self.close()
            failure = explain(error, self._path)
            self._note(failure)
            raise failure from error
        except (NotFound, InvalidArgument, Changed):  # the caller's, not the file's
            raise
        except MtplxError as error:
            self._note(error)
            raise

    def _note(self, error: MtplxError) -> None:
        log.warning("sessions: %s", error)
        counts = self._counts
        self._counts = SessionCounts(counts.sessions, counts.nbytes, str(error))

    def _opened(self) -> sqlite3.Connection:
        """The file; opened again where its place is empty or another's by now."""
        if self._file is not None and self._inode != _inode(self._path):
            self.close()
            if not _has_content(self._path):
                self._gone = f"the sessions' file was removed ({self._path}): restore it from a backup"
                log.warning("sessions: %s", self._gone)
        if self._file is None:
            there = _has_content(self._path)
            try:
                self._file = open_file(self._path)
            except DataLoss as damage:
                aside = self._set_aside()
                self._aside = f"{damage.what} ({aside}): it was set aside, restore it from a backup"
                log.error("sessions: %s", self._aside)
                self._file, there = open_file(self._path), False
            self._inode = _inode(self._path)
            if not there:
                self._made()
        return self._file

    def _set_aside(self) -> Path:
        try:
            return set_aside(self._path)
        except OSError as error:
            raise explain(error, self._path) from error

    @property
    def _trouble(self) -> str:
        """What went wrong with the file and lasts."""
        return self._aside or self._gone

    def _count(self, file: sqlite3.Connection, reason: str) -> None:
        [count] = file.execute("SELECT count(*) FROM sessions").fetchone()
        [size] = file.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        ).fetchone()
        self._counts = SessionCounts(count, size, reason)

    def _forget_journal(self) -> None:
        """What was removed is gone from the journal too."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._file is not None:
                self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _standing(self, file: sqlite3.Connection, before: Conversation) -> int:
        """The key of the session that a turn goes on with, made where it is the first."""
        row = file.execute("SELECT id FROM sessions WHERE name = ?", (before.name,)).fetchone()
        if row is None and not before.key:
            return self._add_session(file, before.name, "")
        turns = 0 if row is None else _count_turns(file, row[0])
        if row is None or row[0] != before.key or turns != before.summary.turns:
            raise Changed(before.name)
        return before.key

    def _forked(self, file: sqlite3.Connection, before: Conversation, fork: str) -> int:
        key = self._add_session(file, fork, before.name)
        own = (key, before.key, before.summary.turns)
        file.execute(
            "INSERT INTO messages SELECT ?, place, turn, role, content FROM messages"
            " WHERE session = ? AND turn <= ?",
            own,
        )
        columns = f"turn, prompt_tokens, shared, ids, {', '.join(_NUMBERS)}"
        file.execute(
            f"INSERT INTO turns (session, {columns}) SELECT ?, {columns} FROM turns"
            " WHERE session = ? AND turn <= ?",
            own,
        )
        if _count_turns(file, key) != before.summary.turns:
            raise Changed(before.name)
        return key

    def _add_session(self, file: sqlite3.Connection, name: str, parent: str) -> int:
        now = self._clock()
        made = file.execute(
            "INSERT INTO sessions (name, created, updated, forked_from) VALUES (?, ?, ?, ?)",
            (name, now, now, parent),
        )
        assert made.lastrowid is not None
        return made.lastrowid


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _has_content(path: Path) -> bool:
    """Whether anything was ever written to it: what a full disk leaves of one that was to be made is empty."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _known(file: sqlite3.Connection, name: str) -> tuple[int]:
    row: tuple[int] | None = file.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise no_session(name)
    return row


def no_session(name: str) -> NotFound:
    """The error of a name that no session has."""
    return NotFound("no such session", name, "see `mtplx sessions ls`")


def _count_turns(file: sqlite3.Connection, key: int) -> int:
    [count] = file.execute("SELECT count(*) FROM turns WHERE session = ?", (key,)).fetchone()
    return int(count)


def _add_turn(file: sqlite3.Connection, key: int, number: int, before: Conversation, turn: Turn) -> None:
    said = [(message.role, message.content) for message in turn.asked] + [("assistant", turn.answer)]
    first = len(before.messages)
    file.executemany(
        "INSERT INTO messages VALUES (?, ?, ?, ?, ?)",
        [(key, first + place, number, role, content) for place, (role, content) in enumerate(said)],
    )
    chain, numbers = turn.chain, turn.numbers
    alike = shared(before.chain, chain)
    ids = pack_ids(chain[alike:])
    made = (key, number, len(turn.prompt), alike, ids, *(getattr(numbers, name) for name in _NUMBERS))
    columns = f"session, turn, prompt_tokens, shared, ids, {', '.join(_NUMBERS)}"
    file.execute(f"INSERT INTO turns ({columns}) VALUES ({', '.join('?' * len(made))})", made)


def _summary(row: Sequence[Any]) -> Summary:
    _, name, created, updated, parent, model, fingerprint, tokens, turns, messages, nbytes = row
    return Summary(name, model, fingerprint, tokens, nbytes, created, updated, turns, messages, parent)


def _conversation(file: sqlite3.Connection, row: Sequence[Any]) -> Conversation:
    key, turns, answers = row[0], [], []
    chain: tuple[int, ...] = ()
    for chain, prompt, numbers in _chains(file, key):
        answers.append(chain[prompt:])
        turns.append(Past(numbers, prompt, len(answers[-1])))
    rows = file.execute(
        "SELECT role, content, turn FROM messages WHERE session = ? ORDER BY place", (key,)
    ).fetchall()
    last = {turn: place for place, (_, _, turn) in enumerate(rows)}
    messages = tuple(
        Message(role, content, turn, answers[turn - 1] if last[turn] == place else ())
        for place, (role, content, turn) in enumerate(rows)
    )
    return Conversation(_summary(row), messages, tuple(turns), chain, key)


def _chains(file: sqlite3.Connection, key: int) -> Iterator[tuple[tuple[int, ...], int, Numbers]]:
    """Of each turn its chain, how much of that was its prompt, and its numbers."""
    rows = file.execute(
        f"SELECT prompt_tokens, shared, ids, {', '.join(_NUMBERS)} FROM turns WHERE session = ? ORDER BY turn",
        (key,),
    )
    chain: tuple[int, ...] = ()
    for prompt, alike, ids, *numbers in rows:
        chain = chain[:alike] + unpack_ids(ids)
        yield chain, prompt, Numbers(*numbers)


def _longest(chains: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Of the chains of one session those that the next one does not begin with."""
    before: tuple[int, ...] = ()
    for chain in chains:
        if shared(before, chain) < len(before):
            yield before
        before = chain
    if before:
        yield before
