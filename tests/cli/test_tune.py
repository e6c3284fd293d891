"""`tune`: what is asked, what is said, how it exits, and what a terminal that goes away does."""

from __future__ import annotations

import pytest
from mtplx_proto.v1 import common_pb2, models_pb2, tuning_pb2
from support.fake_daemon import Failure, FakeDaemon
from support.fake_tuning import tuned


def test_the_daemon_is_asked_for_its_defaults(mtplx, daemon: FakeDaemon) -> None:
    assert mtplx("tune", "smollm2-135m").code == 0
    (asked,) = daemon.requests("Tune")
    assert asked == tuning_pb2.TuneRequest(model="smollm2-135m", suite="mixed")


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["--depths", "1,3,auto"], {"depths": [1, 3], "auto": True}),
        (["--suite", "long-code"], {"suite": "long-code"}),
        (["--prompts", "12"], {"prompts": 12}),
        (["--max-tokens", "9"], {"max_tokens": 9}),
        (["--context", "4096"], {"context": 4096}),
        (["--quick"], {"quick": True}),
        (["--accept-throttled"], {"accept_throttled": True}),
        (["--no-fans"], {"no_fans": True}),
        (["--no-save"], {"no_save": True}),
        (["--retune"], {"retune": True}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_each_flag_changes_what_is_asked(
    mtplx, daemon: FakeDaemon, words: list[str], fields: dict[str, object]
) -> None:
    assert mtplx("tune", "m", *words).code == 0
    (asked,) = daemon.requests("Tune")
    wanted = {"model": "m", "suite": "mixed", **fields}
    assert asked == tuning_pb2.TuneRequest(**wanted)  # type: ignore[arg-type]


def test_the_document_has_the_fields_that_programs_rely_on(mtplx) -> None:
    result = mtplx("tune", "smollm2-135m", "--json")
    document = result.document
    assert set(document) >= {"machine", "key", "rows", "drift", "decision"}
    assert set(document["machine"]) >= {"chip", "memory", "bandwidth_gb_s", "os", "blas"}
    for row in document["rows"]:
        assert set(row) >= {
            "depth", "tok_s", "ratio", "ci95", "acceptance_by_position", "rounds", "suite", "context", "fan_mode",
            "thermal", "power", "machine", "bandwidth_gb_s", "blas",
        }  # fmt: skip
    assert [row["depth"] for row in document["rows"]] == [0, 2, "auto"]
    assert document["rows"][1]["ci95"] == [1.31, 1.54]
    assert (document["rows"][2]["ratio"], document["rows"][2]["ci95"]) == (None, None)
    assert document["decision"]["depth"] == 2
    assert document["decision"]["saved"] is True
    assert document["decision"]["verdict"] == "depth_wins"
    assert document["drift"]["change"] == -0.04
    assert (result.code, result.err) == (0, "")


def test_auto_may_win(mtplx, daemon: FakeDaemon) -> None:
    daemon.tuning = tuned()
    daemon.tuning.decision.ClearField("depth")
    daemon.tuning.decision.auto = True
    assert mtplx("tune", "m", "--json").document["decision"]["depth"] == "auto"


@pytest.mark.parametrize("json", [[], ["--json"]])
@pytest.mark.parametrize(
    "verdict", ["no_depth_beats_plain", "acceptance_collapsed", "throttled", "no_baseline"]
)
def test_no_winner_is_a_success(mtplx, daemon: FakeDaemon, verdict: str, json: list[str]) -> None:
    message = "no depth beats plain decoding here; nothing is saved"
    daemon.tuning = tuned(depth=None, saved=False, cleared=True, verdict=verdict, message=message)
    result = mtplx("tune", "m", *json)
    assert (result.code, result.err) == (0, "")
    if json:
        decision = result.document["decision"]
        assert (decision["depth"], decision["saved"], decision["cleared"]) == (None, False, True)
        assert decision["verdict"] == verdict
    else:
        assert result.out.splitlines()[-1] == f"{verdict}: {message}"


def test_people_read_what_was_measured_and_on_what(mtplx) -> None:
    out = mtplx("tune", "smollm2-135m").out
    assert "1.31 to 1.54" in out
    assert "98 GB/s measured" in out
    assert "fans not-available" in out
    assert "50.0, 49.5, 48.0 tok/s at start, middle, end (-4%), held for 92 s of 92 s" in out
    assert "note: depth 9 clipped to 8" in out
    assert out.splitlines()[-1] == "depth_wins: depth 2 decodes at 1.42 × plain; saved"


def test_a_result_of_an_earlier_run_is_told_to_be_one(mtplx, daemon: FakeDaemon) -> None:
    daemon.tuning = tuned()
    daemon.tuning.cached = True
    assert "measured before, at 2026-01-31T12:00:00+00:00: --retune measures again" in mtplx("tune", "m").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--prompts", "0"], "0"),
        (["--suite", "poems"], "poems"),
        (["--depths", "one"], "one"),
        (["--max-tokens", "1"], "1"),
    ],
)
def test_what_cannot_be_is_refused_before_the_daemon_is_asked(
    mtplx, daemon: FakeDaemon, words: list[str], says: str
) -> None:
    result = mtplx("tune", "m", *words)
    assert result.code == 2
    assert says in result.err
    assert daemon.requests("Tune") == []


def test_a_refusal_is_one_line_and_its_exit_code(mtplx, daemon: FakeDaemon) -> None:
    daemon.failures["Tune"] = Failure(
        "FAILED_PRECONDITION", "there is no head to tune", "m", "see `mtplx inspect`"
    )
    result = mtplx("tune", "m")
    assert (result.code, result.out) == (3, "")
    assert result.err == "error: there is no head to tune (m): see `mtplx inspect`\n"


def test_tune_needs_a_name(mtplx) -> None:
    assert mtplx("tune").code == 2


def test_progress_is_told_beside_the_result(mtplx, daemon: FakeDaemon) -> None:
    step = common_pb2.Progress
    daemon.progress = [
        step(stage="measure", done=done, total=35, unit="runs", eta_s=9) for done in (0, 20, 35)
    ]
    result = mtplx("tune", "m")
    assert "measure: 20 of 35 runs" in result.err
    assert "measure" not in result.out.splitlines()[0]


def test_ps_and_stats_say_whether_drafting_pays(mtplx, daemon: FakeDaemon) -> None:
    [model] = daemon.status.models
    model.tuned.CopyFrom(
        models_pb2.Tuned(
            depth=2,
            ratio=1.42,
            ci95=[1.31, 1.54],
            measured_at="2026-01-31T12:00:00+00:00",
            stale=True,
            used=True,
        )
    )
    model.paying.CopyFrom(common_pb2.Paying(pays=True, depth=2, ratio=1.4, acceptance=0.5, break_even=0.17))
    out = mtplx("ps").out
    assert (
        "smollm2-135m: tuned to depth 2, 1.42 × plain, measured 2026-01-31, stale: other versions since"
        in out
    )
    assert "drafting pays here: depth 2 comes to 1.40 × plain, acceptance 0.50, breaks even at 0.17" in out
    [shown] = mtplx("ps", "--json").document["models"]
    assert shown["tuned"]["depth"] == 2
    assert shown["tuned"]["stale"] is True
    assert shown["paying"] == {"pays": True, "depth": 2, "ratio": 1.4, "acceptance": 0.5, "break_even": 0.17}


def test_a_depth_that_a_model_was_loaded_with_goes_before_the_tuned_one(mtplx, daemon: FakeDaemon) -> None:
    [model] = daemon.status.models
    model.tuned.CopyFrom(models_pb2.Tuned(auto=True, ratio=1.42, measured_at="2026-01-31T12:00:00+00:00"))
    assert (
        "tuned to auto, 1.42 × plain, measured 2026-01-31, not used: it was loaded with a depth"
        in mtplx("ps").out
    )
