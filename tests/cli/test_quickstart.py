"""The tour: its steps with a daemon that runs, and what it says of a measurement."""

from __future__ import annotations

from support.fake_daemon import Failure, FakeDaemon, final
from support.fake_tuning import tuned


def test_a_running_daemon_is_used_and_goes_on(mtplx, daemon: FakeDaemon) -> None:
    result = mtplx("quickstart", "--stop-after")
    assert (result.code, result.err) == (0, "")
    assert [name for name, _ in daemon.asked if name not in ("Hello", "Status")] == [
        "Show", "Load", "Generate", "Tune",
    ]  # fmt: skip
    lines = result.out.splitlines()
    assert lines[0] == "a daemon is running (pid 4321)"
    assert "The Rhine, the Elbe." in lines
    assert "depth_wins: depth 2 decodes at 1.42 × plain; saved" in lines
    (asked,) = daemon.requests("Tune")
    assert (asked.model, asked.quick) == ("smollm2-135m", True)
    assert lines[-1] == "the daemon goes on: `mtplx stop` ends it"


def test_a_model_that_is_not_there_is_pulled(mtplx, daemon: FakeDaemon) -> None:
    daemon.failures["Show"] = Failure("NOT_FOUND", "no such model", "smollm2-135m")
    assert mtplx("quickstart", "--skip-tune").code == 0
    assert [request.name for request in daemon.requests("Pull")] == ["smollm2-135m"]
    assert daemon.requests("Tune") == []


def test_with_json_steps_come_before_one_final_line(mtplx) -> None:
    events = mtplx("quickstart", "--json").events
    assert [event["final"] for event in events] == [False] * (len(events) - 1) + [True]
    last = events[-1]
    assert last["answer"]["text"] == "The Rhine, the Elbe."
    assert [row["ratio"] for row in last["tuning"]["rows"]] == [1, 1.42, None]
    assert last["verdict"] == "depth 2 decodes at 1.42 × plain; saved"
    assert last["daemon"]["running"] is True
    assert [event["step"] for event in events if event.get("event") == "step"] == [
        "daemon", "load", "answer", "stats", "measure", "verdict",
    ]  # fmt: skip


def test_an_answer_that_fails_ends_the_tour(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([final("error", "non_finite", message="no number")])
    result = mtplx("quickstart")
    assert result.code == 1
    assert "no number" in result.err
    assert daemon.requests("Tune") == []


def test_no_winner_is_no_failure(mtplx, daemon: FakeDaemon) -> None:
    message = "no depth beats plain decoding here; nothing is saved"
    daemon.tuning = tuned(depth=None, saved=False, verdict="no_depth_beats_plain", message=message)
    result = mtplx("quickstart")
    assert result.code == 0
    assert message in result.out
