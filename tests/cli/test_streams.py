"""With --json a stream is one event a line, and its last line, whatever happens, is the final one."""

from __future__ import annotations

from typing import Any

import pytest
from mtplx_proto.v1 import common_pb2
from support.fake_daemon import Failure, FakeDaemon, final, text


def test_generate_ends_with_the_whole_answer(mtplx) -> None:
    events = mtplx("generate", "hi", "--json").events
    assert [event["final"] for event in events] == [False] * (len(events) - 1) + [True]
    assert [event["event"] for event in events] == ["progress", "text", "text", "text", "final"]
    last = events[-1]
    assert last["text"] == "".join(event["text"] for event in events if event["event"] == "text")
    assert last["tokens"] == [
        token for event in events if event["event"] == "text" for token in event["tokens"]
    ]
    assert set(last) >= {"text", "tokens", "finish_reason", "stop_origin", "sampler", "usage", "stats"}
    assert set(last["stats"]) >= {
        "ttft_s", "tok_s", "rounds", "drafted", "accepted", "acceptance_by_position", "depth", "exactness",
    }  # fmt: skip


@pytest.mark.parametrize("command", [["pull", "a"], ["load", "a"]], ids=["pull", "load"])
def test_progress_comes_before_the_result(mtplx, daemon: FakeDaemon, command: list[str]) -> None:
    daemon.progress = [common_pb2.Progress(stage="fetch", done=1, total=2, unit="bytes")]
    first, last = mtplx(*command, "--json").events
    assert (first["event"], first["stage"], first["done"], first["total"]) == ("progress", "fetch", 1, 2)
    assert last["final"] is True
    assert {"name", "path", "bytes", "family", "tier"} <= set(last)


def test_an_error_in_the_middle_is_the_last_line(mtplx, daemon: FakeDaemon) -> None:
    def breaks(_request: object, context: Any) -> Any:
        yield text("half", 1)
        Failure("DATA_LOSS", "a file is damaged", "x").abort(context)

    daemon.answer = breaks
    result = mtplx("generate", "hi", "--json")
    assert result.code == 1
    assert result.events[0]["text"] == "half"
    assert result.events[-1] == {
        "error": {"code": "DATA_LOSS", "message": "a file is damaged (x)", "fix": ""},
        "final": True,
    }


def test_an_answer_that_failed_is_still_one_final_line(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([text("half", 1), final("error", "non_finite", message="no number")])
    result = mtplx("generate", "hi", "--json")
    assert result.code == 1
    assert [event["final"] for event in result.events] == [False, True]
    assert result.events[-1]["message"] == "no number"


def test_numbers_that_json_does_not_have_are_null(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([final(stats=common_pb2.Stats(tok_s=float("nan"), ttft_s=float("inf")))])
    stats = mtplx("generate", "hi", "--json").events[-1]["stats"]
    assert (stats["tok_s"], stats["ttft_s"]) == (None, None)


def test_text_of_any_script_is_written_as_it_is(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([text("Größe 日本 🦊", 1), final()])
    result = mtplx("generate", "hi", "--json")
    assert "Größe 日本 🦊" in result.out


def test_an_answer_that_ends_its_line_gets_no_other(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([text("one line\n", 1), final()])
    assert mtplx("generate", "hi").out == "one line\n"
    daemon.answer = lambda *_: iter([final()])
    assert mtplx("generate", "hi").out == ""
