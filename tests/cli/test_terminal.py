"""On a terminal: bars instead of lines, history with 1,000 lines for its owner alone, no line wider than the window."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mtplx_client.cli.output import Output
from mtplx_client.cli.render.table import Column, table
from mtplx_proto.v1 import common_pb2
from mtplxd.errors import NotFound
from support.fake_daemon import FakeDaemon, final, text


def on_terminal(
    environment: dict[str, str], *argv: str, keys: Sequence[tuple[str, str]] = ()
) -> tuple[int, str]:
    """Run a command with a terminal of its own; each of `keys` is (what to wait for, what to type then)."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "mtplx_client", *argv],
        env={**os.environ, **environment, "TERM": "xterm-256color"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    seen, at, rest = "", 0, list(keys)
    while piece := _read(master):
        seen += piece
        while rest and rest[0][0] in seen[at:]:
            until, typed = rest.pop(0)
            at = seen.index(until, at) + len(until)
            _wait_until_it_waits(child)
            os.write(master, typed.encode())
    code = child.wait(60)
    os.close(master)
    assert not rest, seen
    return code, seen


def _wait_until_it_waits(child: subprocess.Popen[bytes]) -> None:
    """Until what has written waits for a key: the interpreter loses a Ctrl-C that comes between the two."""
    stat = Path(f"/proc/{child.pid}/stat")
    while child.poll() is None and stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "R":
        os.sched_yield()


def _read(terminal: int) -> str:
    ready, _, _ = select.select([terminal], [], [], 60)
    assert ready, "the command writes nothing and does not end"
    try:
        return os.read(terminal, 65536).decode()
    except OSError:  # Linux: the other end is closed
        return ""


def test_progress_is_a_bar_that_leaves(environment: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.progress = [
        common_pb2.Progress(stage="fetch", done=done, total=4 << 20, unit="bytes") for done in (0, 4 << 20)
    ]
    code, seen = on_terminal(environment, "pull", "smollm2-135m")
    assert code == 0
    assert "━" in seen
    assert "fetch: " not in seen
    assert "name      smollm2-135m" in seen


def test_no_color_means_no_colour(environment: dict[str, str]) -> None:
    _, plain = on_terminal(environment, "ls", "--no-color")
    _, colored = on_terminal(environment, "ls")
    _, variable = on_terminal({**environment, "NO_COLOR": "1"}, "ls")
    assert "\x1b[36m" in colored
    assert "\x1b[36m" not in plain
    assert "\x1b[36m" not in variable


def test_chat_keeps_its_history_for_its_owner_alone(environment: dict[str, str], home: Path) -> None:
    old = "".join(f"line {at}\n" for at in range(1000))
    (home / "chat_history").write_text(old)
    code, seen = on_terminal(
        environment, "chat", keys=[("> ", "Rivers?\r"), ("Elbe.", ""), ("> ", "/exit\r")]
    )
    assert code == 0
    assert "The Rhine, the Elbe." in seen
    file = home / "chat_history"
    lines = file.read_text().splitlines()
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(lines) == 1000
    assert lines[-2:] == ["Rivers?", "/exit"]


def test_ctrl_c_at_the_prompt_goes_on_and_ctrl_d_ends(environment: dict[str, str]) -> None:
    code, seen = on_terminal(environment, "chat", keys=[("> ", "half"), ("half", "\x03"), ("> ", "\x04")])
    assert code == 0
    assert "error" not in seen


def test_ctrl_c_stops_the_answer_and_not_the_chat(environment: dict[str, str], daemon: FakeDaemon) -> None:
    def answer(request: Any, _context: object) -> Any:
        yield text("One", 1)
        if len(request.chat.messages) == 1:
            daemon.cancelled.wait(30)
        yield final()

    daemon.answer = answer
    keys = [
        ("> ", "Count.\r"),
        ("One", "\x03"),
        ("(stopped)", ""),
        ("> ", "Go on.\r"),
        ("One", ""),
        ("> ", "\x04"),
    ]
    code, _ = on_terminal(environment, "chat", keys=keys)
    assert code == 0
    assert daemon.cancelled.is_set()
    said = [(message.role, message.content) for message in daemon.requests("Generate")[1].chat.messages]
    assert said == [("user", "Count."), ("assistant", "One"), ("user", "Go on.")]


def test_rm_asks_and_no_means_no(environment: dict[str, str], daemon: FakeDaemon) -> None:
    code, seen = on_terminal(environment, "rm", "smollm2-135m", keys=[("[y/N]", "n\r")])
    assert (code, daemon.requests("Remove")) == (130, [])
    assert "Delete smollm2-135m (263 MiB) from" in seen
    assert "nothing was deleted" in seen
    code, _ = on_terminal(environment, "rm", "smollm2-135m", keys=[("[y/N]", "y\r")])
    assert (code, len(daemon.requests("Remove"))) == (0, 1)


def test_nobody_to_ask_is_an_error(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx("rm", "smollm2-135m")
    assert (result.code, daemon.requests("Remove")) == (2, [])
    assert "--yes" in result.err


def test_a_generate_without_prompt_on_a_terminal_says_so(environment: dict[str, str]) -> None:
    code, seen = on_terminal(environment, "generate")
    assert code == 2
    assert "no prompt" in seen


def test_a_narrow_terminal_gets_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (Column("NAME"), Column("SIZE", True))
    rows = [("smollm2-135m", "263 MiB"), ("b", "1 MiB")]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "21")
    assert table(columns, rows, color=False).splitlines()[0] == "NAME             SIZE"
    monkeypatch.setenv("COLUMNS", "20")
    assert table(columns, rows, color=False).splitlines() == [
        "NAME: smollm2-135m", "SIZE: 263 MiB", "", "NAME: b", "SIZE: 1 MiB",
    ]  # fmt: skip


def test_what_a_file_or_a_name_says_never_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output()
    output.line("family    a\x1b]0;owned\x07b\x1b[2J \x1b[1mbold\x1b[0m\tend\x9b1A")
    output.error(NotFound("no such model", "a\x1b[3J\nb", "see `mtplx ls`"))
    out, err = capsys.readouterr()
    assert out == "family    a\\x1b]0;owned\\x07b\\x1b[2J \x1b[1mbold\x1b[0m\tend\\x9b1A\n"
    assert err == "error: no such model (a\\x1b[3J b): see `mtplx ls`\n"
