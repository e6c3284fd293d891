"""A chat: what is sent, the slash commands, several lines, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mtplx_client.cli.lineinput import join_message
from support.fake_daemon import Failure, FakeDaemon


def said(daemon: FakeDaemon) -> list[list[tuple[str, str]]]:
    return [[(m.role, m.content) for m in r.chat.messages] for r in daemon.requests("Generate")]


def typed(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def test_the_conversation_grows(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx("chat", "--system", "Be brief.", "--depth", "2", stdin=typed("Rivers?", "More."))
    assert result.code == 0
    assert result.out == "The Rhine, the Elbe.\n" * 2
    assert said(daemon) == [
        [("user", "Rivers?")],
        [("user", "Rivers?"), ("assistant", "The Rhine, the Elbe."), ("user", "More.")],
    ]
    assert {request.system for request in daemon.requests("Generate")} == {"Be brief."}
    assert {request.depth.fixed for request in daemon.requests("Generate")} == {2}


def test_depth_stats_reset(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx("chat", stdin=typed("/stats", "Rivers?", "/stats", "/depth 3", "/reset", "Again."))
    assert result.err.splitlines() == [
        "no answer yet",
        "80.0 tok/s · first token 0.25 s · 12+9 tokens · depth 2 · rule token · acceptance 0.75 0.50",
        "depth 3 from now on",
        "forgotten",
    ]
    assert said(daemon)[1] == [("user", "Again.")]
    assert [request.depth.fixed for request in daemon.requests("Generate")] == [0, 3]


def test_save_writes_a_private_file(mtplx, tmp_path: Path) -> None:
    file = tmp_path / "chat.md"
    result = mtplx("chat", stdin=typed("Rivers?", f"/save {file}"))
    assert file.read_text() == "## user\n\nRivers?\n\n## assistant\n\nThe Rhine, the Elbe.\n\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "2 messages" in result.err


def test_wrong_commands_are_told_and_the_chat_goes_on(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx(
        "chat", stdin=typed("/dpeth 2", "/depth two", "/save", "/save /no/such/file", "/what", "", "Rivers?")
    )
    assert result.code == 0
    assert result.err.splitlines() == [
        "error: no such command (/dpeth): did you mean /depth?",
        "error: a depth is a whole number or auto (two): say for instance /depth 2",
        "error: no file: say /save FILE",
        "error: cannot write (/no/such/file): No such file or directory",
        "error: no such command (/what): /help lists them",
    ]
    assert len(daemon.requests("Generate")) == 1


def test_exit_ends_and_help_lists(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx("chat", stdin=typed("/help", "/exit", "Rivers?"))
    assert result.code == 0
    for command in ("/stats", "/depth", "/reset", "/save", "/exit"):
        assert command in result.err
    assert daemon.requests("Generate") == []


def test_an_error_of_one_answer_is_told_and_forgotten(mtplx, daemon: FakeDaemon) -> None:
    daemon.failures["Generate"] = Failure("INVALID_ARGUMENT", "prompt is too long", "9000 tokens")
    result = mtplx("chat", stdin=typed("Rivers?", "/stats"))
    assert result.code == 0
    assert result.err.splitlines() == ["error: prompt is too long (9000 tokens)", "no answer yet"]


def test_a_daemon_that_is_gone_ends_the_chat(mtplx, daemon: FakeDaemon) -> None:
    daemon.stop()
    assert mtplx("chat", stdin=typed("Rivers?")).code == 4


def test_with_json_each_answer_ends_with_a_final_line(mtplx) -> None:
    events = mtplx("chat", "--json", stdin=typed("a", "b")).events
    assert [event["text"] for event in events if event["final"]] == ["The Rhine, the Elbe."] * 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["one"], "one"),
        (["one\\", "two\\", "three"], "one\ntwo\nthree"),
        (['"""', "def f():", "    pass", '"""'], "def f():\n    pass"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['"""one"""'], "one"),
        (['  """one\\', '"""'], "one\\"),
    ],
)
def test_messages_of_several_lines(lines: list[str], message: str) -> None:
    prompts: list[str] = []
    rest = iter(lines)

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return next(rest)

    assert join_message(read) == message
    assert list(rest) == []
    assert prompts == ["> ", *["… "] * (len(lines) - 1)]


def test_piped_bytes_that_are_no_utf8_end_the_chat(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx("chat", stdin=b"Rivers?\n\xff\nMore.\n")
    assert result.code == 2
    assert "not UTF-8" in result.err
    assert said(daemon) == [[("user", "Rivers?")]]


def test_json_lines_are_whole_documents(mtplx) -> None:
    for line in mtplx("chat", "--json", stdin=typed("a")).out.splitlines():
        json.loads(line)


@pytest.mark.parametrize("loaded", [True, False])
def test_a_depth_above_the_limit_is_refused_at_once_and_the_old_one_kept(
    mtplx, daemon: FakeDaemon, loaded: bool
) -> None:
    if not loaded:
        del daemon.status.models[:]
    result = mtplx(
        "chat", "--model", "smollm2-135m", "--depth", "2", stdin=typed("/depth 99", "Rivers?", "/depth 8")
    )
    assert result.err.splitlines() == [
        "error: depth is above the head's limit (99): its head drafts up to 8",
        "depth 8 from now on",
    ]
    assert [request.depth.fixed for request in daemon.requests("Generate")] == [2]


def test_a_plain_chat_takes_no_depth(mtplx) -> None:
    result = mtplx("chat", "--plain", stdin=typed("/depth 2"))
    assert result.err == "error: this chat decodes plainly (2): start one without --plain\n"
