"""Sessions of a real daemon: they survive its death, answer one at a time, and read what was generated as it was."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.errors import FailedPrecondition, NotFound
from mtplx_client.events import Final, Progress, Text
from support.daemon_process import DaemonProcess, running_daemon, short_folder

ROOM = {"MTPLXD_STORE_FREE_FLOOR": "0"}


@pytest.fixture(scope="module")
def daemon(tiny: Path) -> Iterator[DaemonProcess]:
    with short_folder() as folder, running_daemon(folder / "home", **ROOM) as process:
        with Client(socket=process.socket) as client:
            client.load(str(tiny), force=True)
        yield process


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(socket=daemon.socket) as connected:
        yield connected


def options(tiny: Path | None, session: str, **more: Any) -> dict[str, Any]:
    settings = {"max_tokens": 12, "temperature": 0.0, "force": True, "session": session, **more}
    return settings if tiny is None else {"model": str(tiny), **settings}


def contents(client: Client, session: str) -> list[str]:
    return [message.content for message in client.session(session).messages]


def test_acknowledged_turns_are_there_after_kill_9_and_the_next_one_goes_on(home: Path, tiny: Path) -> None:
    with running_daemon(home, **ROOM) as process, Client(socket=process.socket) as client:
        replies = [client.complete(said, **options(tiny, "work")) for said in ("one", "two")]
        stream = client.generate("three", **options(None, "work", max_tokens=2000, ignore_eos=True))
        assert any(isinstance(event, Text) for event in stream)
        process.kill()
    with running_daemon(home, **ROOM) as process, Client(socket=process.socket) as client:
        assert contents(client, "work") == ["one", replies[0].text, "two", replies[1].text]
        reply = client.complete("three", **options(None, "work"))
        assert reply.session is not None
        assert (reply.session.turn, reply.session.kept, reply.session.notices) == (3, True, ())
        assert reply.model == tiny.name
        process.signal(signal.SIGTERM)
        assert process.wait()[0] == 0
    with running_daemon(home, **ROOM) as process, Client(socket=process.socket) as client:
        assert contents(client, "work")[-2:] == ["three", reply.text]
        assert client.status().store.sessions == 1


def test_a_session_says_what_the_same_messages_say_without_one(client: Client, tiny: Path) -> None:
    said: list[dict[str, str]] = []
    for question in ("hello there", "and the other", "so"):
        kept = client.complete(question, **options(tiny, "same"))
        said.append({"role": "user", "content": question})
        plain = client.complete(messages=said, model=str(tiny), max_tokens=12, temperature=0.0, force=True)
        assert kept.text == plain.text
        said.append({"role": "assistant", "content": kept.text})


def test_each_turn_finds_what_the_turn_before_left(client: Client, tiny: Path) -> None:
    long = "the thing and the other " * 30
    first = client.complete(long, **options(tiny, "found", max_tokens=40, ignore_eos=True))
    second = client.complete("so", **options(None, "found"))
    read = first.usage.prompt_tokens + first.usage.completion_tokens
    found = client.session("found")
    ids = found.messages[1].tokens
    assert list(ids) == first.tokens
    assert second.usage.cached_tokens >= first.usage.prompt_tokens // 64 * 64
    assert second.usage.prompt_tokens > read - 64
    assert second.usage.cached_tokens < second.usage.prompt_tokens


def test_two_clients_of_one_session_take_turns(daemon: DaemonProcess, tiny: Path) -> None:
    count, turns = 3, 4
    waited: list[str] = []

    def ask(number: int) -> list[tuple[int, str, str]]:
        replies = []
        with Client(socket=daemon.socket) as own:
            for turn in range(turns):
                final, text = None, ""
                for event in own.generate(f"{number}-{turn}", **options(tiny, "shared", max_tokens=16)):
                    if isinstance(event, Progress) and "waits for the session" in event.message:
                        waited.append(event.message)
                    if isinstance(event, Text):
                        text += event.text
                    if isinstance(event, Final):
                        final = event
                assert final is not None
                assert final.session is not None
                assert final.session.kept
                replies.append((final.session.turn, f"{number}-{turn}", text))
        return replies

    with ThreadPoolExecutor(count) as pool:
        told = sorted(turn for turns_of in pool.map(ask, range(count)) for turn in turns_of)
    assert [turn for turn, _, _ in told] == list(range(1, count * turns + 1))
    with Client(socket=daemon.socket) as client:
        said = contents(client, "shared")
    assert said == [text for _, question, answer in told for text in (question, answer)]
    assert waited


def test_a_busy_session_forks_or_refuses(daemon: DaemonProcess, tiny: Path) -> None:
    with Client(socket=daemon.socket) as one, Client(socket=daemon.socket) as two:
        one.complete("begin", **options(tiny, "fork"))
        stream = one.generate("long", **options(None, "fork", max_tokens=1500, ignore_eos=True))
        assert any(isinstance(event, Text) for event in stream)
        with pytest.raises(FailedPrecondition, match="answers somebody else"):
            two.complete("now", **options(None, "fork", session_busy="refuse"))
        for refused in (lambda: two.remove_session("fork"), lambda: two.rename_session("fork", "x")):
            with pytest.raises(FailedPrecondition, match="answers somebody"):
                refused()
        assert [session.busy for session in two.sessions() if session.name == "fork"] == [True]
        reply = two.complete("now", **options(None, "fork", session_busy="fork"))
        assert reply.session is not None
        assert (reply.session.name, reply.session.forked_from, reply.session.turn) == ("fork-2", "fork", 2)
        stream.close()
        assert contents(two, "fork-2")[2:] == ["now", reply.text]


def test_an_answer_that_was_stopped_is_part_of_the_conversation(client: Client, tiny: Path) -> None:
    stream = client.generate("tell me", **options(tiny, "stopped", max_tokens=1500, ignore_eos=True))
    seen = ""
    for event in stream:
        if isinstance(event, Text):
            seen += event.text
            if len(seen) > 20:
                break
    stream.close()
    reply = client.complete("go on", **options(None, "stopped"))
    assert reply.session is not None
    assert reply.session.turn == 2
    said = contents(client, "stopped")
    assert said[1].startswith(seen)
    assert client.session("stopped").turns[0].stop_origin == "client"


def test_files_are_private_and_removing_leaves_nothing(
    daemon: DaemonProcess, client: Client, tiny: Path
) -> None:
    client.complete("a very secret thing " * 20, **options(tiny, "secret", max_tokens=4))
    store = daemon.home / "store"
    files = [*files_below(store)]
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert {oct(mode) for mode, _ in files} == {"0o600"}
    assert any(b"very secret" in data for _, data in files)
    client.remove_session("secret")
    assert not any(b"very secret" in data for _, data in files_below(store))
    assert "very secret" not in daemon.log()
    with pytest.raises(NotFound, match="no such session"):
        client.session("secret")


def files_below(folder: Path) -> Iterator[tuple[int, bytes]]:
    """Mode and bytes of each file; a temporary one may be gone by the time it is looked at."""
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                yield stat.S_IMODE(path.stat().st_mode), path.read_bytes()


def blocks_in(home: Path) -> int:
    return len([*(home / "store" / "blocks").rglob("*.blk")])


def test_a_session_takes_its_blocks_with_it_and_others_keep_theirs(home: Path, tiny: Path) -> None:
    with running_daemon(home, **ROOM) as process, Client(socket=process.socket) as client:
        for name, store in (("mine", "on"), ("yours", "write-only"), ("none", "off")):
            client.complete(f"{name} is the thing " * 40, **options(tiny, name, max_tokens=4, store=store))
        assert process.stop()[0] == 0
    before = blocks_in(home)
    with running_daemon(home, **ROOM) as process, Client(socket=process.socket) as client:
        sizes = {session.name: session.bytes for session in client.sessions()}
        assert sizes["none"] < sizes["mine"] / 4 < sizes["yours"]
        assert client.cache_stats().blocks == before
        assert client.remove_session("mine").bytes_freed == sizes["mine"]
        assert 0 < client.cache_stats().blocks < before
        reply = client.complete("again", **options(None, "yours"))
        assert reply.usage.cached_tokens > 0
        assert client.cache_stats().tokens_from_disk > 0
        assert process.stop()[0] == 0
    with running_daemon(home, **ROOM) as process, Client(socket=process.socket) as client:
        assert client.cache_verify().bad == 0
        assert client.cache_clear().bytes_freed > 0
        assert blocks_in(home) == 0
        assert {session.name for session in client.sessions()} == {"yours", "none"}


def test_a_pack_that_changed_says_so_and_a_pack_that_is_gone_too(home: Path, tmp_path: Path) -> None:
    from support.tiny_pack import make_tiny_pack

    pack = make_tiny_pack(tmp_path / "changing")
    with running_daemon(home, **ROOM) as process, Client(socket=process.socket) as client:
        client.complete("one", **options(pack, "work", plain=True))
        client.complete("two", **options(None, "work", plain=True))
        client.unload(str(pack))
        make_tiny_pack(pack, seed=5)
        replies = [client.complete(said, **options(None, "work", plain=True)) for said in ("3", "4", "5")]
        notices = [notice for reply in replies if reply.session for notice in reply.session.notices]
        assert notices == [f"{pack} is no longer what it was when it answered here before"]
        with sqlite3.connect(home / "store" / "sessions.db") as file:
            known = [row[0] for row in file.execute("SELECT fingerprint FROM turns ORDER BY turn")]
        assert len({fingerprint for fingerprint in known if fingerprint}) == 2
        client.unload(str(pack))
        pack.rename(tmp_path / "elsewhere")
        with pytest.raises(NotFound, match="the session's model is gone"):
            client.complete("six", **options(None, "work", plain=True))
        assert "its model is gone" in client.session("work").session.notices[0]
        moved = client.complete("six", **options(tmp_path / "elsewhere", "work", plain=True))
        assert moved.session is not None
        assert (moved.session.turn, moved.session.kept) == (6, True)
        assert client.session("work").session.model == str(tmp_path / "elsewhere")


def test_sessions_work_with_the_store_off_and_no_block_is_kept(home: Path, tiny: Path) -> None:
    with running_daemon(home, MTPLXD_STORE="off") as process, Client(socket=process.socket) as client:
        client.complete("one " * 200, **options(tiny, "work"))
        reply = client.complete("two", **options(None, "work"))
        assert reply.session is not None
        assert (reply.session.turn, reply.session.kept) == (2, True)
        status = client.status().store
        assert (status.state, status.blocks, status.sessions) == ("off", 0, 1)
        with pytest.raises(FailedPrecondition, match="the daemon's store is off"):
            client.complete("three", **options(None, "work", store="on"))
        assert {path.name.split("-")[0] for path in (home / "store").iterdir()} == {"sessions.db"}
        assert client.cache_clear(sessions=True).sessions == 1
        assert list((home / "store").iterdir()) == []


def test_a_daemon_that_is_stopped_keeps_the_answer_it_gives(home: Path, tiny: Path) -> None:
    with running_daemon(home, "--drain-s", "60", **ROOM) as process, Client(socket=process.socket) as client:
        client.load(str(tiny), force=True)
        begun = threading.Event()
        kept: list[Final] = []

        def ask() -> None:
            for event in client.generate("one", **options(tiny, "work", max_tokens=300, ignore_eos=True)):
                begun.set()
                if isinstance(event, Final):
                    kept.append(event)

        thread = threading.Thread(target=ask)
        thread.start()
        assert begun.wait(60)
        assert process.stop()[0] == 0
        thread.join(60)
        assert kept[0].session is not None
        assert kept[0].session.kept
    with running_daemon(home, **ROOM) as process, Client(socket=process.socket) as client:
        assert client.session("work").session.turns == 1


def test_a_session_that_is_removed_is_gone_from_memory_as_well(client: Client, tiny: Path) -> None:
    """Removed as soon as it was answered, when the last of it is not written yet."""
    secret = "a secret that is long enough to be kept " * 8
    before = client.cache_stats().memory_bytes
    for name in ("secret", "again"):
        reply = client.complete(secret, **options(tiny, name))
        assert reply.usage.cached_tokens < 64 < reply.usage.prompt_tokens
        assert client.cache_stats().memory_bytes > before
        client.remove_session(name)
        assert client.cache_stats().memory_bytes == before
