"""Sessions in their file: each turn whole or not at all, private, of this version, and through faults of the disk."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition, InvalidArgument, MtplxError, NotFound, ResourceExhausted
from mtplxd.store.conversation import Conversation, Message, Numbers, Summary, Turn
from mtplxd.store.session_file import STEPS, VERSION, open_file
from mtplxd.store.sessions import Sessions
from support.talking import said, say, turn

V1 = Path(__file__).parents[1] / "data" / "sessions_v1.sql"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "sessions.db"


@pytest.fixture
def sessions(path: Path) -> Sessions:
    return Sessions(path)


def test_what_was_said_is_there_again_for_whoever_opens_the_file(sessions: Sessions, path: Path) -> None:
    assert say(sessions, "work", "one?", "1") == 1
    assert say(sessions, "work", "two?", "2") == 2
    found = Sessions(path).read("work")
    assert found is not None
    assert [(m.role, m.content, m.turn) for m in found.messages] == [
        ("user", "one?", 1), ("assistant", "1", 1), ("user", "two?", 2), ("assistant", "2", 2)
    ]  # fmt: skip
    assert found.chain == tuple(map(ord, "one?1two?2"))
    assert [message.tokens for message in found.messages] == [(), (ord("1"),), (), (ord("2"),)]
    assert [(past.prompt_tokens, past.completion_tokens) for past in found.turns] == [(4, 1), (9, 1)]
    summary = found.summary
    assert (summary.turns, summary.messages, summary.tokens, summary.model) == (2, 4, 10, "m")


def test_looking_makes_no_file(sessions: Sessions, path: Path) -> None:
    assert sessions.read("work") is None
    assert (sessions.summaries(), sessions.chains(), sessions.counts.sessions) == ([], {}, 0)
    sessions.look()
    assert not path.parent.exists()


def test_file_and_folder_are_their_owners_alone(path: Path) -> None:
    path.parent.mkdir()
    path.touch(0o644)
    made: list[None] = []
    sessions = Sessions(path, made=lambda: made.append(None))
    say(sessions, "work", "one?", "1")
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert len({file.name for file in path.parent.iterdir()}) == 3
    other = Sessions(path.with_name("new") / "sessions.db", made=lambda: made.append(None))
    say(other, "work", "one?", "1")
    assert stat.S_IMODE(path.with_name("new").stat().st_mode) == 0o700
    assert made == [None, None]


def test_a_commit_is_on_the_disk_before_it_returns(sessions: Sessions) -> None:
    say(sessions, "work", "one?", "1")
    assert sessions._file is not None
    pragmas = ("journal_mode", "synchronous", "fullfsync", "checkpoint_fullfsync", "secure_delete")
    assert [sessions._file.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas] == ["wal", 2, 1, 1, 1]


def test_a_chain_that_was_rendered_anew_is_kept_from_where_it_parts(sessions: Sessions) -> None:
    say(sessions, "work", "one?", "1")
    before = sessions.read("work")
    assert before is not None
    other = Turn((Message("user", "two?"),), "2", (*map(ord, "one!"), 7), (8,), Numbers("m"))
    sessions.commit(before, other)
    after = sessions.read("work")
    assert after is not None
    assert after.chain == (*map(ord, "one!"), 7, 8)
    assert after.messages[1].tokens == (ord("1"),)
    assert sessions.chains() == {"work": [tuple(map(ord, "one?1")), (*map(ord, "one!"), 7, 8)]}


def test_a_growing_chat_is_written_once(sessions: Sessions) -> None:
    for _ in range(30):
        say(sessions, "work", "q" * 100, "a" * 100)
    [summary] = sessions.summaries()
    assert summary.tokens == 30 * 200
    assert summary.nbytes < 30 * 200 * (1 + 4) * 1.1


def test_a_turn_goes_on_only_from_what_is_there(sessions: Sessions) -> None:
    say(sessions, "work", "one?", "1")
    stale = sessions.read("work")
    assert stale is not None
    say(sessions, "work", "two?", "2")
    with pytest.raises(FailedPrecondition, match="no longer as it was"):
        sessions.commit(stale, turn("other?", "x", stale))
    with pytest.raises(FailedPrecondition, match="no longer as it was"):
        sessions.commit(Conversation(Summary("work")), turn("first?", "x"))
    sessions.remove("work")
    with pytest.raises(FailedPrecondition, match="no longer as it was"):
        sessions.commit(stale, turn("other?", "x", stale))
    assert sessions.counts.reason == ""
    say(sessions, "work", "anew?", "y")
    with pytest.raises(FailedPrecondition, match="no longer as it was"):
        sessions.commit(stale, turn("other?", "x", stale))
    assert said(sessions, "work") == ["anew?", "y"]


def test_a_fork_has_all_that_came_before_and_parts_there(sessions: Sessions) -> None:
    say(sessions, "work", "one?", "1")
    say(sessions, "work", "two?", "2", fork="work-2")
    say(sessions, "work", "three?", "3")
    assert said(sessions, "work") == ["one?", "1", "three?", "3"]
    assert said(sessions, "work-2") == ["one?", "1", "two?", "2"]
    fork = sessions.read("work-2")
    assert fork is not None
    assert fork.summary.forked_from == "work"
    assert fork.messages[1].tokens == (ord("1"),)
    sessions.remove("work")
    assert said(sessions, "work-2") == ["one?", "1", "two?", "2"]


def test_a_fork_parts_where_it_was_read_though_the_session_went_on(sessions: Sessions) -> None:
    say(sessions, "work", "one?", "1")
    before = sessions.read("work")
    assert before is not None
    say(sessions, "work", "two?", "2")
    assert sessions.commit(before, turn("other?", "x", before), "work-2") == 2
    assert said(sessions, "work-2") == ["one?", "1", "other?", "x"]
    assert said(sessions, "work") == ["one?", "1", "two?", "2"]


def test_a_fork_of_what_never_was_kept_begins(sessions: Sessions) -> None:
    say(sessions, "work", "one?", "1", fork="work-2")
    assert (said(sessions, "work"), said(sessions, "work-2")) == ([], ["one?", "1"])


def test_a_fork_of_a_name_that_is_taken_changes_nothing(sessions: Sessions) -> None:
    say(sessions, "work", "one?", "1")
    say(sessions, "other", "two?", "2")
    with pytest.raises(MtplxError):
        say(sessions, "work", "three?", "3", fork="other")
    assert said(sessions, "other") == ["two?", "2"]
    assert say(sessions, "work", "three?", "3") == 2


def test_the_latest_used_comes_first(path: Path) -> None:
    clock = iter(range(100))
    sessions = Sessions(path, clock=lambda: next(clock))
    for name in ("a", "b", "a", "c"):
        say(sessions, name, "?", "!")
    assert [summary.name for summary in sessions.summaries()] == ["c", "a", "b"]


def test_a_name_is_changed_to_a_free_one(sessions: Sessions) -> None:
    say(sessions, "work", "one?", "1")
    say(sessions, "other", "two?", "2")
    with pytest.raises(InvalidArgument, match="there is a session of that name"):
        sessions.rename("work", "other")
    with pytest.raises(InvalidArgument):
        sessions.rename("work", "../x")
    with pytest.raises(NotFound):
        sessions.rename("none", "x")
    assert sessions.rename("work", "play").name == "play"
    assert sessions.rename("play", "play").name == "play"
    assert (said(sessions, "work"), said(sessions, "play")) == ([], ["one?", "1"])
    assert sessions.counts.reason == ""


def test_removing_leaves_nothing_of_it_in_any_file(sessions: Sessions, path: Path) -> None:
    say(sessions, "work", "a very secret thing", "indeed " * 1000)
    say(sessions, "other", "hello", "there")
    sessions.remove("work")
    for file in path.parent.iterdir():
        assert b"very secret" not in file.read_bytes()
        assert b"indeed indeed" not in file.read_bytes()
    assert [summary.name for summary in sessions.summaries()] == ["other"]
    with pytest.raises(NotFound):
        sessions.remove("work")


def test_clearing_removes_the_file_whatever_is_in_it(sessions: Sessions, path: Path) -> None:
    say(sessions, "work", "one?", "1")
    count, freed = sessions.clear()
    assert (count, freed > 0, list(path.parent.iterdir())) == (1, True, [])
    path.write_bytes(b"no database at all" * 100)
    assert sessions.clear()[0] == 0
    assert list(path.parent.iterdir()) == []
    say(sessions, "work", "two?", "2")
    assert said(sessions, "work") == ["two?", "2"]


def test_what_a_full_disk_leaves_of_a_file_is_none(sessions: Sessions, path: Path) -> None:
    """It was to be made, and nothing could be written to it: there is nothing to read either."""
    path.parent.mkdir()
    path.touch()
    path.chmod(0o400)
    assert (sessions.summaries(), sessions.read("work"), sessions.counts.reason) == ([], None, "")
    assert path.stat().st_size == 0
    path.chmod(0o600)
    made: list[None] = []
    sessions = Sessions(path, made=lambda: made.append(None))
    say(sessions, "work", "one?", "1")
    assert (len(sessions.summaries()), len(made)) == (1, 1)


def test_a_full_disk_costs_the_turn_alone(sessions: Sessions) -> None:
    say(sessions, "work", "one?", "1")
    assert sessions._file is not None
    [pages] = sessions._file.execute("PRAGMA page_count").fetchone()
    sessions._file.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(ResourceExhausted, match="the disk is full"):
        say(sessions, "work", "long?", "x" * 100_000)
    assert "the disk is full" in sessions.counts.reason
    assert said(sessions, "work") == ["one?", "1"]
    assert say(sessions, "work", "long?", "x" * 100_000) == 2
    assert sessions.counts.reason == ""


def test_a_volume_that_cannot_be_written_is_named_and_read(sessions: Sessions, path: Path) -> None:
    say(sessions, "work", "one?", "1")
    sessions.close()
    reader = Sessions(path)
    assert reader.read("work") is not None
    assert reader._file is not None
    reader._file.execute("PRAGMA query_only = ON")  # what SQLite says of a volume that became read-only
    with pytest.raises(FailedPrecondition, match="readonly"):
        say(reader, "work", "two?", "2")
    assert "check disk and folder" in reader.counts.reason
    assert said(reader, "work") == ["one?", "1"]


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of it can be opened to be written."""

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, mode)

    opened = os.open
    monkeypatch.setattr(os, "open", refuse)


def test_a_read_only_volume_is_read_and_named(
    sessions: Sessions, path: Path, request: pytest.FixtureRequest
) -> None:
    say(sessions, "work", "one?", "1")
    sessions.close()
    request.getfixturevalue("read_only")
    reader = Sessions(path)
    assert said(reader, "work") == ["one?", "1"]
    assert [summary.name for summary in reader.summaries()] == ["work"]
    assert (reader.counts.sessions, "its volume is read-only" in reader.counts.reason) == (1, True)
    with pytest.raises(FailedPrecondition, match=r"Read-only file system.*its volume is read-only"):
        say(reader, "work", "two?", "2")


def test_what_still_lies_in_the_journal_is_not_passed_over_on_a_read_only_volume(
    sessions: Sessions, path: Path, request: pytest.FixtureRequest
) -> None:
    """A conversation without its last turn would be another one."""
    say(sessions, "work", "one?", "1")  # not closed: as after a kill
    request.getfixturevalue("read_only")
    with pytest.raises(FailedPrecondition, match="latest turns are not in their file yet"):
        Sessions(path).read("work")


def test_a_file_removed_underneath_is_named_until_a_turn_is_kept(sessions: Sessions, path: Path) -> None:
    say(sessions, "work", "one?", "1")
    for file in path.parent.iterdir():
        file.unlink()
    assert sessions.summaries() == []
    assert f"the sessions' file was removed ({path})" in sessions.counts.reason
    say(sessions, "work", "anew?", "2")
    assert sessions.counts.reason == ""


def test_a_folder_deleted_underneath_takes_its_sessions_with_it(sessions: Sessions, path: Path) -> None:
    say(sessions, "work", "one?", "1")
    before = sessions.read("work")
    assert before is not None
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    with pytest.raises(FailedPrecondition, match="no longer as it was"):
        sessions.commit(before, turn("two?", "2", before))
    assert sessions.read("work") is None
    say(sessions, "work", "anew?", "3")
    assert said(Sessions(path), "work") == ["anew?", "3"]


def test_another_file_in_its_place_is_opened_instead(sessions: Sessions, path: Path, tmp_path: Path) -> None:
    other = Sessions(tmp_path / "other" / "sessions.db")
    say(other, "theirs", "one?", "1")
    other.close()
    say(sessions, "ours", "one?", "1")
    (tmp_path / "other" / "sessions.db").replace(path)
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)
    assert [summary.name for summary in sessions.summaries()] == ["theirs"]


@pytest.mark.parametrize("damage", ["garbage", "flipped", "cut", "another"])
def test_a_damaged_file_is_set_aside_and_named(sessions: Sessions, path: Path, damage: str) -> None:
    for number in range(20):
        say(sessions, f"work-{number}", "one? " * 200, "1")
    sessions.close()
    whole = path.read_bytes()
    if damage == "garbage":
        path.write_bytes(b"no database at all" * 100)
    elif damage == "flipped":
        path.write_bytes(whole[:4096] + bytes(byte ^ 0x55 for byte in whole[4096:16384]) + whole[16384:])
    elif damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    else:
        path.unlink()
        with sqlite3.connect(path) as file:
            file.execute("CREATE TABLE notes (text)")
        file.close()
    again = Sessions(path)
    assert again.summaries() == []
    [aside] = path.parent.glob("sessions.db.damaged-*")
    assert str(aside) in again.counts.reason
    assert say(again, "new", "one?", "1") == 1
    assert str(aside) in again.counts.reason
    assert again.clear()[0] == 1
    assert list(path.parent.glob("*damaged*")) == []


def test_a_newer_files_sessions_are_left_alone(path: Path) -> None:
    open_file(path, (*STEPS, "CREATE TABLE of_the_future (x);")).close()
    before = path.read_bytes()
    sessions = Sessions(path)
    with pytest.raises(FailedPrecondition, match=rf"newer mtplxd .*version {VERSION + 1} of {VERSION}"):
        sessions.summaries()
    with pytest.raises(FailedPrecondition, match="update mtplxd"):
        say(sessions, "work", "one?", "1")
    assert path.read_bytes() == before
    assert "newer" in sessions.counts.reason


def test_a_file_of_the_version_before_goes_on(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as file:
        file.executescript(V1.read_text(encoding="utf-8"))
    file.close()
    sessions = Sessions(path)
    found = sessions.read("rivers")
    assert found is not None
    assert [(message.role, message.content) for message in found.messages] == [
        ("system", "Be brief."), ("user", "Name a river."), ("assistant", "The Rhine."),
        ("user", "Another?"), ("assistant", "The Elbe."),
    ]  # fmt: skip
    assert found.messages[2].tokens == (21, 22, 2)
    assert found.chain == (1, 11, 12, 21, 22, 2, 13, 31, 32, 2)
    assert (found.summary.forked_from, found.summary.created) == ("", 1760000000.0)
    assert say(sessions, "rivers", "More?", "No.") == 3
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_a_migration_that_is_cut_off_leaves_the_old_version(path: Path) -> None:
    open_file(path, STEPS[:1]).close()
    with pytest.raises(MtplxError):
        open_file(path, (STEPS[0], "ALTER TABLE sessions ADD COLUMN x; SELECT nonsense FROM nowhere"))
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (1,)
        assert "x" not in [row[1] for row in file.execute("PRAGMA table_info(sessions)")]


_WRITER = """
import sys
from pathlib import Path
from mtplxd.store.conversation import Conversation, Summary
from mtplxd.store.sessions import Sessions
from support.talking import say
sessions = Sessions(Path(sys.argv[1]))
for number in range(100000):
    kept = say(sessions, "work", f"question {number} " + "q" * 3000, f"answer {number} " + "a" * 3000)
    print(kept, flush=True)
"""


def test_kill_9_at_any_instant_keeps_what_was_acknowledged_and_nothing_by_half(path: Path) -> None:
    acknowledged = 0
    for instant in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(1 + instant % 4)]
        child.kill()
        told += [int(line) for line in child.stdout.read().splitlines() if line.strip()]
        child.wait()
        assert told[0] == acknowledged + 1
        found = Sessions(path).read("work")
        assert found is not None
        turns = found.summary.turns
        assert told[-1] <= turns <= told[-1] + 1
        assert len(found.messages) == 2 * turns
        assert found.chain == tuple(map(ord, "".join(message.content for message in found.messages)))
        acknowledged = turns
