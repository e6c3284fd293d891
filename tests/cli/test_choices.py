"""`generate -n`: several answers to one prompt, told apart in a stream and shown one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_daemon import Failure, FakeDaemon, final, logprobs, progress, text


def of(choice: int, event: Any) -> Any:
    event.choice = choice
    return event


def woven(*_: object) -> Iterator[Any]:
    """Two answers whose pieces alternate; the second ends first."""
    yield of(0, progress("prefill", 12, 12))
    yield of(1, text("Elbe", 21))
    yield of(0, text("Rhine", 11))
    yield of(1, text(" and Oder", 22, 23))
    yield of(1, final("length", "max_tokens"))
    yield of(0, text(" alone", 12))
    yield of(0, final())


def test_the_request_says_how_many_and_one_is_as_ever(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = woven
    assert mtplx("generate", "hi", "-n", "2", "--priority", "background").code == 0
    mtplx("generate", "hi", "--n", "2")
    daemon.answer = lambda *_: iter([text("a", 1), final()])
    mtplx("generate", "hi")
    asked = daemon.requests("Generate")
    assert [(r.n, r.HasField("n"), r.priority) for r in asked] == [
        (2, True, "background"), (2, True, ""), (0, False, ""),
    ]  # fmt: skip


@pytest.mark.parametrize("bad", [("-n", "0"), ("-n", "17"), ("--priority", "urgent")])
def test_what_no_daemon_takes_is_a_usage_error(mtplx, daemon: FakeDaemon, bad: tuple[str, str]) -> None:
    result = mtplx("generate", "hi", *bad)
    assert result.code == 2
    assert bad[0].lstrip("-") in result.err
    assert daemon.requests("Generate") == []


def test_people_read_one_answer_after_the_other(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = woven
    result = mtplx("generate", "hi", "-n", "2")
    assert result.out == "--- 1 of 2 ---\nRhine alone\n\n--- 2 of 2 ---\nElbe and Oder\n"


def test_programs_get_every_event_with_its_choice_and_all_answers_at_the_end(
    mtplx, daemon: FakeDaemon
) -> None:
    daemon.answer = woven
    *events, last = mtplx("generate", "hi", "-n", "2", "--json").events
    told = [(event["event"], event["choice"]) for event in events]
    assert told == [
        ("progress", 0), ("text", 1), ("text", 0), ("text", 1), ("end", 1), ("text", 0), ("end", 0),
    ]  # fmt: skip
    assert (last["event"], last["final"]) == ("final", True)
    assert [(one["choice"], one["text"], one["tokens"]) for one in last["choices"]] == [
        (0, "Rhine alone", [11, 12]),
        (1, "Elbe and Oder", [21, 22, 23]),
    ]
    assert [one["finish_reason"] for one in last["choices"]] == ["stop", "length"]
    assert (last["text"], last["tokens"]) == ("Rhine alone", [11, 12])
    assert set(last) >= {"finish_reason", "stop_origin", "sampler", "usage", "stats"}


def test_one_answer_has_todays_documents(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter(
        [progress("prefill", 1, 2), logprobs((1, -0.5, b"a")), text("a", 1), final()]
    )
    events = mtplx("generate", "hi", "--json").events
    assert all("choice" not in event and "choices" not in event for event in events)


def test_numbers_are_told_of_each_answer(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = woven
    result = mtplx("generate", "hi", "-n", "2", "--stats")
    assert result.err.count("tok/s") == 2


def test_one_answer_that_failed_is_the_commands_failure(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter(
        [of(0, text("a", 1)), of(1, final("error", "non_finite", message="no number")), of(0, final())]
    )
    result = mtplx("generate", "hi", "-n", "2")
    assert result.code == 1
    assert "no number" in result.err
    assert "--- 2 of 2 ---" in result.out


def test_answers_without_an_end_are_told(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([of(0, text("a", 1)), of(0, final())])
    result = mtplx("generate", "hi", "-n", "2")
    assert result.code == 1
    assert "ended early" in result.err


def test_an_error_in_the_middle_ends_the_line(mtplx, daemon: FakeDaemon) -> None:
    def breaks(_request: object, context: Any) -> Any:
        yield of(0, text("half", 1))
        Failure("DATA_LOSS", "a file is damaged").abort(context)

    daemon.answer = breaks
    result = mtplx("generate", "hi", "-n", "2")
    assert (result.code, result.out) == (1, "--- 1 of 2 ---\nhalf\n")


def test_a_number_that_was_not_asked_for_is_the_daemons_fault(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([of(2, text("a", 1))])
    result = mtplx("generate", "hi", "-n", "2")
    assert result.code == 1
    assert "choice that was not asked for (2)" in result.err
    assert "bug of" not in result.err
