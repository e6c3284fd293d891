"""Lines of the helper: what is a request, what is refused, and what no line can be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtplxd.thermal.fand.protocol import (
    LINE_CAP,
    LONGEST_LEASE_S,
    BadLine,
    Lines,
    Request,
    parse,
    refusal,
    reply,
    say,
)


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (b"fan/1 status", Request("status")),
        (b"fan/1 status\r", Request("status")),
        (b"fan/1 release", Request("release")),
        (b"fan/1 hold 10", Request("hold", 10.0)),
        (b"fan/1 hold 0.5", Request("hold", 0.5)),
    ],
)
def test_requests(line: bytes, request_: Request) -> None:
    assert parse(line) == request_


@pytest.mark.parametrize("request_", [Request("status"), Request("release"), Request("hold", 12.25)])
def test_what_a_client_says_is_what_is_heard(request_: Request) -> None:
    (line,) = Lines().feed(say(request_))
    assert parse(line) == request_


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"", "bad-line"),
        (b"status", "bad-line"),
        (b"fan/2 status", "bad-version"),
        (b"fan/0 hold 10", "bad-version"),
        (b"fan/1 stop", "bad-request"),
        (b"fan/1 hold", "bad-request"),
        (b"fan/1 status 3", "bad-request"),
        (b"fan/1 release 3", "bad-request"),
        (b"fan/1 hold 31", "bad-lease"),
        (b"fan/1 hold 9999", "bad-lease"),
        (b"fan/1 hold 0", "bad-lease"),
        (b"fan/1 hold 0.05", "bad-lease"),
        (b"fan/1 hold -1", "bad-line"),
        (b"fan/1 hold 1e9", "bad-line"),
        (b"fan/1 hold nan", "bad-line"),
        (b"fan/1 hold inf", "bad-line"),
        (b"fan/1 hold 10 10", "bad-line"),
        (b"fan/1  hold 10", "bad-line"),
        (b"fan/1 hold 10\x00", "bad-line"),
        ("fan/1 hold ٣".encode(), "bad-line"),
        (b"fan/1 hold 10\nfan/1 hold 10", "bad-line"),
    ],
)
def test_everything_else_is_refused_with_a_code(line: bytes, code: str) -> None:
    with pytest.raises(BadLine) as found:
        parse(line)
    assert found.value.code == code


@given(st.binary(max_size=200))
def test_no_bytes_are_a_longer_lease_than_allowed(line: bytes) -> None:
    try:
        found = parse(line)
    except BadLine:
        return
    assert found.verb in ("status", "release", "hold")
    assert found.seconds <= LONGEST_LEASE_S


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8))
def test_lines_are_the_same_however_they_arrive(pieces: list[bytes]) -> None:
    lines, got = Lines(), []
    whole = b"".join(pieces)
    if any(len(line) > LINE_CAP for line in whole.split(b"\n")):
        return
    for piece in pieces:
        got += lines.feed(piece)
    assert got == whole.split(b"\n")[:-1]


@pytest.mark.parametrize("data", [b"x" * (LINE_CAP + 1), b"x" * (LINE_CAP + 1) + b"\n", b"a\n" + b"x" * 5000])
def test_a_line_without_end_is_refused_before_it_ends(data: bytes) -> None:
    with pytest.raises(BadLine) as found:
        Lines().feed(data)
    assert found.value.code == "too-long"
    assert Lines().feed(b"x" * LINE_CAP + b"\n") == [b"x" * LINE_CAP]


def test_answers_are_one_line_of_json() -> None:
    for line in (reply(state="held\nnow"), refusal("bad-line", "no\nline")):
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
    assert json.loads(refusal("bad-line", "why")) == {
        "v": 1,
        "ok": False,
        "error": "bad-line",
        "message": "why",
    }
