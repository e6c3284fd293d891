"""Sessions and the cache at the command line: what is sent, what is asked before, and what is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import generation_pb2
from support.fake_daemon import FakeDaemon, final, text


def typed(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def kept(name: str = "rivers", **fields: Any) -> Any:
    """A script that answers in a session."""
    told = generation_pb2.Kept(**{"name": name, "turn": 2, "kept": True, **fields})

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        del request, context
        yield text("Gladly.", 5)
        yield final(session=told)

    return answer


def test_generate_names_session_mode_and_store(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = kept()
    result = mtplx(
        "generate",
        "More?",
        "--session",
        "rivers",
        "--session-busy",
        "fork",
        "--store",
        "write-only",
        "--json",
    )
    [request] = daemon.requests("Generate")
    assert (request.prompt, request.session, request.session_busy, request.store) == (
        "More?", "rivers", "fork", "write-only"
    )  # fmt: skip
    assert result.events[-1]["session"] == {
        "name": "rivers", "turn": 2, "kept": True, "forked_from": "", "notices": []
    }  # fmt: skip


def test_notices_come_after_the_answer(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = kept(kept=False, notices=["this turn is not kept: the disk is full"])
    result = mtplx("generate", "More?", "--session", "rivers")
    assert (result.code, result.out) == (0, "Gladly.\n")
    assert result.err == "session rivers: this turn is not kept: the disk is full\n"


@pytest.mark.parametrize("option", [["--session-busy", "shove"], ["--store", "maybe"]])
def test_unknown_modes_are_usage(mtplx, option: list[str]) -> None:
    assert mtplx("generate", "hi", *option).code == 2


def test_a_model_is_loaded_with_its_store(mtplx, daemon: FakeDaemon) -> None:
    assert mtplx("load", "smollm2-135m", "--store", "off").code == 0
    assert daemon.requests("Load")[0].store == "off"


def test_a_chat_sends_only_what_is_new_and_says_where_it_goes_on(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = kept()
    result = mtplx("chat", "--session", "rivers", stdin=typed("More?", "And more?"))
    assert result.out == "Gladly.\n" * 2
    assert result.err == "session rivers goes on: 1 turn so far, the last with smollm2-135m\n"
    said = [[(m.role, m.content) for m in request.chat.messages] for request in daemon.requests("Generate")]
    assert said == [[("user", "More?")], [("user", "And more?")]]
    assert {request.session for request in daemon.requests("Generate")} == {"rivers"}


def test_a_chat_of_a_new_name_begins(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = kept("lakes", turn=1)
    assert mtplx("chat", "--session", "lakes", stdin=typed("Hi")).err == "session lakes begins\n"


def test_a_chat_goes_on_with_its_fork(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = kept("rivers-2", forked_from="rivers", notices=["rivers answers somebody else"])
    result = mtplx("chat", "--session", "rivers", "--session-busy", "fork", stdin=typed("One", "Two"))
    assert "session rivers-2: rivers answers somebody else" in result.err
    assert [request.session for request in daemon.requests("Generate")] == ["rivers", "rivers-2"]


def test_a_chat_stays_with_its_session_where_a_fork_was_not_kept(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = kept("rivers-2", kept=False, notices=["this turn is not kept: the disk is full"])
    mtplx("chat", "--session", "rivers", stdin=typed("One", "Two"))
    assert [request.session for request in daemon.requests("Generate")] == ["rivers", "rivers"]


def test_save_in_a_session_writes_all_of_it(mtplx, tmp_path: Path) -> None:
    file = tmp_path / "rivers.md"
    result = mtplx("chat", "--session", "rivers", stdin=typed(f"/save {file}"))
    assert "3 messages written" in result.err
    assert file.read_text().startswith("# rivers\n")
    assert file.read_text().endswith("## assistant\n\nThe Rhine, the Elbe.\n")


def test_reset_in_a_session_deletes_it(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx("chat", "--session", "rivers", stdin=typed("/reset", "/reset"))
    assert [request.name for request in daemon.requests("Sessions.Remove")] == ["rivers", "rivers"]
    assert daemon.sessions == []
    assert result.err.splitlines()[1:] == ["forgotten", "forgotten"]


@pytest.mark.parametrize(
    ("command", "question"),
    [
        (["sessions", "rm", "rivers"], "Delete the session rivers (1 turn, 39.1 KiB)?"),
        (["cache", "clear"], "Delete 40 blocks (7.6 MiB)?"),
        (["cache", "clear", "--sessions"], "Delete 40 blocks (7.6 MiB) and 1 session?"),
    ],
)
def test_nothing_is_deleted_unasked(
    mtplx, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, command: list[str], question: str
) -> None:
    result = mtplx(*command)
    assert result.code == 2
    assert "add --yes" in result.err
    asked: list[str] = []

    def no(text: str, **options: Any) -> bool:
        del options
        asked.append(text)
        return False

    monkeypatch.setattr("click.confirm", no)
    monkeypatch.setattr("mtplx_client.cli.asking._on_terminal", lambda: True)
    assert mtplx(*command).code == 130
    assert asked == [question]
    assert not daemon.requests("Sessions.Remove")
    assert not daemon.requests("Store.Clear")
    assert daemon.sessions


def test_clearing_all_wipes_sessions_too(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx("cache", "clear", "--sessions", "--yes")
    assert result.out == "7.6 MiB freed, 1 session deleted\n"
    assert daemon.requests("Store.Clear")[0].sessions
    assert mtplx("sessions", "ls").out == "no sessions yet: begin one with `mtplx chat --session NAME`\n"


def test_damaged_blocks_are_a_failed_verification(mtplx, daemon: FakeDaemon) -> None:
    daemon.verified.bad = 2
    result = mtplx("cache", "verify")
    assert (result.code, result.out) == (3, "")
    assert "blocks on disk were damaged (2 of 40): they were set aside" in result.err
    document = mtplx("cache", "verify", "--json")
    assert (document.code, document.events[-1]["verified"]["bad"]) == (3, 2)


def test_an_export_is_a_private_new_file(mtplx, tmp_path: Path) -> None:
    file = tmp_path / "rivers.json"
    result = mtplx("sessions", "export", "rivers", "--format", "json", "--output", str(file))
    assert result.out == f"3 messages written to {file}\n"
    assert json.loads(file.read_text())["sessions"][0]["name"] == "rivers"
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    again = mtplx("sessions", "export", "rivers", "--output", str(file))
    assert again.code == 3
    assert f"there is something already ({file}): give another name" in again.err
    assert file.read_bytes() == before
    assert mtplx("sessions", "export", "rivers", "--output", "/no/such/x").code == 3


def test_busy_forks_and_notices_are_listed(mtplx, daemon: FakeDaemon) -> None:
    session = daemon.sessions[0].session
    session.busy, session.forked_from = True, "lakes"
    session.notices.append("its model is gone: `mtplx pull smollm2-135m`")
    listed = mtplx("sessions", "ls").out
    assert "1, busy" in listed
    assert "rivers: its model is gone: `mtplx pull smollm2-135m`" in listed
    shown = mtplx("sessions", "show", "rivers").out
    assert "copy of   lakes" in shown
    assert "now       answers somebody" in shown


@pytest.mark.parametrize("verb", [["show"], ["export"], ["rename", "x"], ["rm", "--yes"]])
def test_an_unknown_session_says_where_to_look(mtplx, verb: list[str]) -> None:
    result = mtplx("sessions", verb[0], "none", *verb[1:])
    assert result.code == 1
    assert result.err == "error: no such session (none): see `mtplx sessions ls`\n"


def test_what_steers_a_terminal_is_shown_not_sent(mtplx, daemon: FakeDaemon) -> None:
    daemon.sessions[0].messages[1].content = "\x1b]0;title\x07"
    assert "\x1b" not in mtplx("sessions", "show", "rivers").out
