"""Each kind of failure has its exit code and one clear line; with --json also a document."""

from __future__ import annotations

import os
import socket as sockets
import subprocess
import sys

import pytest
from mtplx_client import connection
from support.fake_daemon import Failure, FakeDaemon, final, text

CODES = {
    "INVALID_ARGUMENT": 2,
    "FAILED_PRECONDITION": 3,
    "UNAVAILABLE": 4,
    "CANCELLED": 130,
    "NOT_FOUND": 1,
    "RESOURCE_EXHAUSTED": 1,
    "DEADLINE_EXCEEDED": 1,
    "DATA_LOSS": 1,
    "INTERNAL": 1,
}


@pytest.mark.parametrize("code", CODES)
def test_a_status_becomes_its_exit_code_and_one_line(mtplx, daemon: FakeDaemon, code: str) -> None:
    daemon.failures["List"] = Failure(code, "cannot list", "packs", "look again")
    result = mtplx("ls")
    assert (result.code, result.out) == (CODES[code], "")
    assert result.err == "error: cannot list (packs): look again\n"


@pytest.mark.parametrize("code", CODES)
def test_with_json_the_error_is_a_document_too(mtplx, daemon: FakeDaemon, code: str) -> None:
    daemon.failures["List"] = Failure(code, "cannot list", "packs", "look again")
    result = mtplx("ls", "--json")
    assert result.code == CODES[code]
    assert result.document == {"error": {"code": code, "message": "cannot list (packs)", "fix": "look again"}}
    assert result.err == "error: cannot list (packs): look again\n"


@pytest.mark.parametrize(
    ("reason", "origin", "code"),
    [
        ("stop", "eos", 0),
        ("stop", "stop_string", 0),
        ("length", "max_tokens", 0),
        ("length", "context", 0),
        ("cancelled", "client", 130),
        ("cancelled", "operator", 130),
        ("cancelled", "shutdown", 130),
        ("cancelled", "deadline", 1),
        ("error", "non_finite", 1),
        ("error", "memory", 1),
    ],
)
def test_the_end_of_an_answer_becomes_an_exit_code(
    mtplx, daemon: FakeDaemon, reason: str, origin: str, code: int
) -> None:
    daemon.answer = lambda *_: iter([text("half", 1), final(reason, origin, message="sorry")])
    result = mtplx("generate", "hi")
    assert (result.code, result.out) == (code, "half\n")
    assert result.err.startswith("error: ") == (code != 0)
    assert result.err.count("\n") == (code != 0)


def test_usage_errors_are_2_before_anything_is_asked(mtplx, daemon: FakeDaemon) -> None:
    for argv in (
        ["nothing"],
        ["ls", "--nothing"],
        ["show"],
        ["ls", "extra"],
        ["generate", "hi", "--top-k", "x"],
    ):
        assert mtplx(*argv).code == 2
    assert daemon.asked == []


def test_a_relative_folder_open_to_others_is_3(mtplx, daemon: FakeDaemon) -> None:
    daemon.socket.parent.chmod(0o755)
    assert mtplx("status").code == 3


def test_a_socket_path_too_long_is_2_with_the_limit(mtplx) -> None:
    result = mtplx("status", "--socket", "/" + "x" * 200)
    assert result.code == 2
    assert "103" in result.err


def test_another_protocol_is_3_and_says_what_to_update(mtplx, daemon: FakeDaemon) -> None:
    daemon.protocol = "2"
    result = mtplx("status")
    assert result.code == 3
    assert "update this client" in result.err


def test_a_bug_is_one_line_and_a_file(mtplx, home, monkeypatch: pytest.MonkeyPatch) -> None:
    from mtplx_client.client import Client

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("first\nsecond")

    (home / "logs").mkdir()
    monkeypatch.setattr(Client, "listing", broken)
    result = mtplx("ls")
    assert result.code == 1
    assert result.err.startswith("error: mtplx failed (ZeroDivisionError: first): this is a bug")
    assert result.err.count("\n") == 1
    crash = home / "logs" / "mtplx-crash.log"
    assert "Traceback" in crash.read_text()
    assert crash.stat().st_mode & 0o777 == 0o600


def test_a_bad_config_value_is_2_and_names_the_key(mtplx, home) -> None:
    (home / "config.toml").write_text('keep_alive = "soon"\n')
    result = mtplx("status")
    assert result.code == 2
    assert "keep_alive" in result.err


def test_a_bad_config_key_is_one_warning(mtplx, home) -> None:
    (home / "config.toml").write_text('keepalive = "10m"\n')
    result = mtplx("status")
    assert result.code == 0
    assert result.err.count("warning: ") == 1
    assert "keepalive" in result.err


def test_a_reader_that_goes_away_is_no_error_line(environment: dict[str, str]) -> None:
    command = f"{sys.executable} -m mtplx_client --help | head -c 1"
    child = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert (child.stdout, child.stderr) == ("U", "")


@pytest.mark.parametrize(
    "argv", [["unload", ""], ["load", " "], ["show", ""], ["rm", "", "--yes"], ["pull", ""]]
)
def test_an_empty_name_is_a_usage_error_and_asks_nothing(mtplx, daemon: FakeDaemon, argv: list[str]) -> None:
    result = mtplx(*argv)
    assert result.code == 2
    assert "NAME (it is empty)" in result.err
    assert daemon.asked == []


def test_a_folder_is_no_pack_to_remove(mtplx, daemon: FakeDaemon, tmp_path) -> None:
    result = mtplx("rm", str(tmp_path))
    assert result.code == 3
    assert "only packs in the home are removed" in result.err
    assert daemon.asked == []


def test_json_without_a_command_is_a_usage_error(mtplx) -> None:
    result = mtplx("--json")
    assert result.code == 2
    assert result.document["error"]["code"] == "INVALID_ARGUMENT"
    assert mtplx().code == 0


def test_fewer_tokens_than_one_are_told_the_least(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx("generate", "hi", "--max-tokens", "-1")
    assert result.code == 2
    assert "from 1" in result.err
    assert daemon.requests("Generate") == []


def test_an_unload_that_waits_for_the_engine_says_so(mtplx, daemon: FakeDaemon) -> None:
    assert "a request is in work" in mtplx("unload", "smollm2-135m").err
    daemon.status.queue.running = 0
    assert mtplx("unload", "smollm2-135m").err == ""


def test_a_daemon_that_does_not_answer_is_4_and_no_missing_one(
    mtplx, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOOK_S", 0.02)
    silent_at = daemon.socket.with_name("silent.sock")
    with sockets.socket(sockets.AF_UNIX) as silent:
        silent.bind(str(silent_at))
        silent.listen()
        result = mtplx("status", "--socket", str(silent_at), "--timeout", "0.3")
    assert result.code == 4
    waiting, error = result.err.splitlines()
    assert waiting.startswith("the daemon does not answer yet: waiting")
    assert error.startswith(f"error: the daemon is there but does not answer ({silent_at}): ")
    assert "--timeout" in error
