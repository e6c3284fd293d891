"""The tour: its steps with a daemon that runs, and what it says of a measurement."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplx_client.cli.tour import verdict
from mtplx_client.measurements import Measurement, MeasureRow
from mtplx_proto.v1 import tuning_pb2
from support.fake_daemon import Failure, FakeDaemon, final


@pytest.fixture(autouse=True)
def _measured(daemon: FakeDaemon) -> None:
    row = tuning_pb2.MeasureRow
    daemon.measurement = tuning_pb2.Measurement(
        rows=[
            row(depth=0, tok_s=50, ratio_vs_plain=1, runs=3),
            row(depth=1, tok_s=60, ratio_vs_plain=1.2, runs=3),
            row(depth=2, tok_s=71, ratio_vs_plain=1.42, runs=3),
        ],
        model="smollm2-135m",
    )


def test_a_running_daemon_is_used_and_goes_on(mtplx, daemon: FakeDaemon, home: Path) -> None:
    result = mtplx("quickstart", "--stop-after")
    assert (result.code, result.err) == (0, "")
    assert [name for name, _ in daemon.asked if name != "Status"] == [
        "Show", "Load", "Generate", "Measure", "Show",
    ]  # fmt: skip
    lines = result.out.splitlines()
    assert lines[0] == "a daemon is running (pid 4321)"
    assert "The Rhine, the Elbe." in lines
    assert "with its head, at depth 2, smollm2-135m decodes at 1.42 × plain decoding" in result.out
    assert lines[-1] == "the daemon goes on: `mtplx stop` ends it"
    assert (home / "runs" / "decode-smollm2-135m.json").is_file()


def test_a_model_that_is_not_there_is_pulled(mtplx, daemon: FakeDaemon) -> None:
    daemon.failures["Show"] = Failure("NOT_FOUND", "no such model", "smollm2-135m")
    assert mtplx("quickstart", "--skip-tune").code == 0
    assert [request.name for request in daemon.requests("Pull")] == ["smollm2-135m"]
    assert daemon.requests("Measure") == []


def test_with_json_steps_come_before_one_final_line(mtplx) -> None:
    events = mtplx("quickstart", "--json").events
    assert [event["final"] for event in events] == [False] * (len(events) - 1) + [True]
    last = events[-1]
    assert last["answer"]["text"] == "The Rhine, the Elbe."
    assert [row["ratio_vs_plain"] for row in last["measurement"]["rows"]] == [1, 1.2, 1.42]
    assert last["daemon"]["running"] is True
    assert [event["step"] for event in events if event.get("event") == "step"] == [
        "daemon", "load", "answer", "stats", "measure", "verdict",
    ]  # fmt: skip


def test_an_answer_that_fails_ends_the_tour(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([final("error", "non_finite", message="no number")])
    result = mtplx("quickstart")
    assert result.code == 1
    assert "no number" in result.err
    assert daemon.requests("Measure") == []


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([1.0, 1.2, 1.1], "with its head, at depth 1, m decodes at 1.20 × plain decoding (3 prompts"),
        ([1.0, 0.8, 0.9], "no depth beats plain decoding here: the best, depth 2, is 0.90 × plain"),
        ([1.0], "nothing to compare"),
        ([1.0, 0.0], "nothing to compare"),
    ],
)
def test_the_verdict_is_what_was_measured(ratios: list[float], said: str) -> None:
    rows = tuple(MeasureRow(depth=at, ratio_vs_plain=ratio, runs=3) for at, ratio in enumerate(ratios))
    assert verdict(Measurement(rows=rows, model="m")).startswith(said)
