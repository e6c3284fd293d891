"""Where a prompt comes from, and what is no prompt."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.fake_daemon import FakeDaemon


def asked(daemon: FakeDaemon) -> str:
    return daemon.requests("Generate")[-1].prompt


def test_the_argument_is_the_prompt(mtplx, daemon: FakeDaemon) -> None:
    assert mtplx("generate", "Name three rivers.", stdin=b"not this").code == 0
    assert asked(daemon) == "Name three rivers."


@pytest.mark.parametrize("prompt", ["-5 + 3 =", "- eggs\n- milk", "-.5", "-1"])
def test_a_prompt_may_begin_like_a_number_or_a_list(mtplx, daemon: FakeDaemon, prompt: str) -> None:
    assert mtplx("generate", prompt, "--temperature", "0").code == 0
    assert asked(daemon) == prompt
    assert daemon.requests("Generate")[-1].sampler.temperature == 0
    assert mtplx("generate", "-hello").code == 2  # may be an option that was misspelt


@pytest.mark.parametrize("argv", [["generate", "-"], ["generate"]], ids=["dash", "pipe"])
def test_standard_input_is_read_whole(mtplx, daemon: FakeDaemon, argv: list[str]) -> None:
    assert mtplx(*argv, stdin="zwei\nZeilen ä\n".encode()).code == 0
    assert asked(daemon) == "zwei\nZeilen ä"


def test_raw_keeps_the_last_line_end(mtplx, daemon: FakeDaemon) -> None:
    mtplx("generate", "-", "--raw", stdin=b"a\n")
    assert asked(daemon) == "a\n"
    assert daemon.requests("Generate")[-1].raw


@pytest.mark.parametrize("stdin", [b"\xff\xfe", b"half \xc3", b"\xed\xa0\x80"])
def test_bytes_that_are_no_utf8_are_refused(mtplx, daemon: FakeDaemon, stdin: bytes) -> None:
    result = mtplx("generate", "-", stdin=stdin)
    assert result.code == 2
    assert result.err.startswith("error: standard input is not UTF-8 (byte ")
    assert daemon.asked == []


@pytest.mark.parametrize(
    "argv", [["generate", ""], ["generate", " \n"], ["generate", "-"], ["generate", "", "--raw"]]
)
def test_an_empty_prompt_is_refused(mtplx, daemon: FakeDaemon, argv: list[str]) -> None:
    result = mtplx(*argv, stdin=b"\n")
    assert (result.code, result.err) == (2, "error: the prompt is empty: give some text\n")
    assert daemon.asked == []


def test_an_argument_that_is_no_utf8_is_refused(environment: dict[str, str], daemon: FakeDaemon) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "mtplx_client", "generate", b"\xff"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert child.returncode == 2
    assert child.stderr == ("error: an argument is not UTF-8 (byte 0): convert it, for instance with iconv\n")
    assert daemon.asked == []


def test_options_reach_the_request(mtplx, daemon: FakeDaemon) -> None:
    mtplx(
        "generate", "hi", "--model", "m", "--system", "Be brief.", "--temperature", "0.5", "--top-p", "0.25",
        "--top-k", "40", "--min-p", "0.125", "--seed", "7", "--depth", "0", "--max-tokens", "9", "--ignore-eos",
        "--stop", "a", "--stop", "b", "--raw", "--force", "--plain",
    )  # fmt: skip
    request = daemon.requests("Generate")[0]
    assert (request.model, request.system, request.max_tokens) == ("m", "Be brief.", 9)
    sampler = request.sampler
    assert (sampler.temperature, sampler.top_p, sampler.top_k, sampler.min_p, sampler.seed) == (
        0.5, 0.25, 40, 0.125, 7,
    )  # fmt: skip
    assert request.depth.WhichOneof("choice") == "fixed"
    assert (request.depth.fixed, list(request.stop)) == (0, ["a", "b"])
    assert request.ignore_eos
    assert request.raw
    assert request.force
    assert request.plain


def test_what_is_not_given_is_not_sent(mtplx, daemon: FakeDaemon) -> None:
    mtplx("generate", "hi")
    request = daemon.requests("Generate")[0]
    assert not request.HasField("sampler")
    assert not request.HasField("depth")
    assert not request.HasField("max_tokens")
    assert request.model == ""
