"""`forge`: what is asked, what is said meanwhile and in the end, how it exits, what a terminal that leaves does."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest
from mtplx_proto.v1 import forge_pb2
from support.fake_builds import RUN, lost
from support.fake_daemon import Failure, FakeDaemon

BUILD = ("forge", "build", "org/model", "--name", "mine")


def test_a_build_asks_for_no_more_than_was_said(mtplx, daemon: FakeDaemon) -> None:
    assert mtplx(*BUILD).code == 0
    (asked,) = daemon.requests("Build")
    wanted = forge_pb2.BuildRequest(source="org/model", name="mine", group_size=64, dtype="auto")
    wanted.training.SetInParent()
    assert asked == wanted


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["--body-bits", "4"], {"body_bits": 4}),
        (["--body-bits", "16"], {"body_bits": 16}),
        (["--group-size", "32"], {"group_size": 32}),
        (["--dtype", "bf16"], {"dtype": "bf16"}),
        (
            ["--body-bits", "4", "--override", "lm_head=8", "--override", "model.layers.0=6"],
            {
                "body_bits": 4,
                "overrides": [{"layers": "lm_head", "bits": 8}, {"layers": "model.layers.0", "bits": 6}],
            },
        ),
        (["--quality-floor", "0.9"], {"quality_floor": 0.9}),
        (["--train"], {"train": True}),
        (["--train", "--train-method", "full"], {"train": True, "training": {"method": "full"}}),
        (["--train-tokens", "100", "--train-steps", "7"], {"training": {"tokens": 100, "steps": 7}}),
        (["--train-seed", "9"], {"training": {"seed": 9}}),
        (["--quick"], {"quick": True}),
        (["--depths", "1,2,auto"], {"depths": [1, 2], "auto": True}),
        (["--head-bits", "8", "--allow-degraded-head"], {"head_bits": 8, "allow_degraded_head": True}),
        (["--on-battery"], {"on_battery": True}),
        (["--no-fans"], {"no_fans": True}),
        (["--accept-throttled"], {"accept_throttled": True}),
        (["--detach"], {"detach": True}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_flag_changes_what_is_asked(mtplx, daemon: FakeDaemon, words: list[str], fields: dict) -> None:
    assert mtplx(*BUILD, *words).code == 0
    (asked,) = daemon.requests("Build")
    base = {"source": "org/model", "name": "mine", "group_size": 64, "dtype": "auto", "training": {}}
    assert asked == forge_pb2.BuildRequest(**{**base, **fields})


def test_paths_are_absolute_when_they_leave(
    mtplx, daemon: FakeDaemon, home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "checkpoint").mkdir()
    monkeypatch.chdir(home)
    assert mtplx("forge", "build", "./checkpoint", "--name", "mine", "--train-prompts", "p.jsonl").code == 0
    (asked,) = daemon.requests("Build")
    assert asked.source == str(home / "checkpoint")
    assert asked.training.prompts == str(home / "p.jsonl")


def test_events_and_the_end_have_the_fields_that_programs_rely_on(mtplx) -> None:
    result = mtplx(*BUILD, "--json")
    *events, last = result.events
    assert [event["step"] for event in events] == ["queue", "fetch", "convert", "measure"]
    for event in events:
        assert set(event) >= {"run", "step", "progress", "eta_s", "message"}
        assert event["final"] is False
    assert set(last) >= {
        "run", "verdict", "failure_reasons", "pack", "rows", "head", "calibration", "training", "final"
    }  # fmt: skip
    assert (last["run"], last["verdict"], last["pack"], last["depth"]) == (RUN, "depth_wins", "mine", 2)
    assert [row["depth"] for row in last["rows"]] == [0, 2, "auto"]
    assert last["head"] == {"tensors": 12}
    assert last["training"] is None
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    "verdict", ["no_depth_beats_plain", "throttled", "calibration_failed", "no_mtp_head"]
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_build_that_does_not_win_exits_3_with_its_rows(
    mtplx, daemon: FakeDaemon, verdict: str, form: list[str]
) -> None:
    daemon.outcome = lost(verdict)
    result = mtplx(*BUILD, *form)
    assert result.code == 3
    assert result.err.splitlines()[-1].startswith(f"error: no pack was made ({verdict}): ")
    if form:
        last = result.events[-1]
        assert (last["verdict"], last["pack"], last["final"]) == (verdict, None, True)
        assert len(last["rows"]) == 3
    else:
        assert "1.31 to 1.54" in result.out
        assert result.out.splitlines()[-1] == f"{verdict}: no depth beats plain decoding here"


def test_a_build_of_no_rows_says_none(mtplx, daemon: FakeDaemon) -> None:
    assert daemon.outcome is not None
    del daemon.outcome.rows[:]
    daemon.outcome.details_json = ""
    out = mtplx(*BUILD).out
    assert "tok/s" not in out
    assert out.splitlines()[-1].startswith("depth_wins: ")


def test_a_detached_build_is_not_waited_for(mtplx, daemon: FakeDaemon) -> None:
    daemon.outcome = None
    result = mtplx(*BUILD, "--detach")
    assert (result.code, result.out.split()[0]) == (0, RUN)
    assert mtplx(*BUILD, "--detach", "--json").events == [
        {"run": RUN, "step": "queue", "detached": True, "final": True}
    ]


def test_who_stops_watching_leaves_the_build_at_work(mtplx, daemon: FakeDaemon) -> None:
    daemon.outcome = None

    def interrupt() -> None:
        if daemon.requests("Build"):
            threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()

    daemon.on_enter = interrupt
    result = mtplx(*BUILD)
    assert result.code == 130
    assert f"error: the build goes on ({RUN}): `mtplx forge runs --follow` shows it" in result.err
    assert daemon.requests("Forge.Cancel") == []


def test_a_stream_without_an_end_is_an_error(mtplx, daemon: FakeDaemon) -> None:
    daemon.build_steps.clear()
    daemon.failures["Follow"] = Failure("NOT_FOUND", "no build is in work", "", "see `mtplx forge runs`")
    result = mtplx("forge", "runs", "--follow")
    assert (result.code, result.err) == (1, "error: no build is in work: see `mtplx forge runs`\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--body-bits", "7"], "7"),
        (["--group-size", "48"], "48"),
        (["--dtype", "fp8"], "fp8"),
        (["--override", "lm_head"], "lm_head"),
        (["--override", "lm_head=9"], "lm_head=9"),
        (["--override", "=8"], "=8"),
        (["--quality-floor", "2"], "2"),
        (["--head-bits", "16"], "16"),
        (["--depths", "one"], "one"),
        (["--train-seed", "-1"], "-1"),
    ],
)
def test_what_cannot_be_is_refused_before_the_daemon_is_asked(
    mtplx, daemon: FakeDaemon, words: list[str], says: str
) -> None:
    result = mtplx(*BUILD, *words)
    assert result.code == 2
    assert says in result.err
    assert daemon.requests("Build") == []


def test_a_build_needs_a_name(mtplx) -> None:
    result = mtplx("forge", "build", "org/model")
    assert result.code == 2
    assert "--name is missing" in result.err


def test_a_refusal_is_one_line_and_its_exit_code(mtplx, daemon: FakeDaemon) -> None:
    fix = "give another --name"
    daemon.failures["Build"] = Failure("FAILED_PRECONDITION", "a pack of this name is there", "mine", fix)
    result = mtplx(*BUILD)
    assert (result.code, result.out) == (3, "")
    assert result.err == f"error: a pack of this name is there (mine): {fix}\n"


def test_a_head_that_was_trained_is_called_so_where_packs_show(mtplx, daemon: FakeDaemon) -> None:
    assert "(trained)" not in mtplx("ls").out + mtplx("show", "mine").out
    daemon.packs[0].head_trained = True
    assert "adapter (trained)" in mtplx("ls").out
    assert "adapter (trained), depth up to 8" in mtplx("show", "mine").out
    assert mtplx("show", "mine", "--json").document["head_trained"] is True


def test_runs_can_be_narrowed_and_followed(mtplx, daemon: FakeDaemon) -> None:
    every = mtplx("forge", "runs", "--json").document["runs"]
    assert [run["status"] for run in every] == [
        "done", "done", "interrupted", "failed", "failed", "running",
    ]  # fmt: skip
    assert [run["run"] for run in mtplx("forge", "runs", "half", "--json").document["runs"]] == [
        every[2]["run"]
    ]
    assert mtplx("forge", "runs", "mine", "--follow").code == 0
    assert [asked.run for asked in daemon.requests("Follow")] == ["mine"]


def test_a_run_is_resumed_and_cancelled_by_the_name_it_was_given(mtplx, daemon: FakeDaemon) -> None:
    assert mtplx("forge", "resume", RUN).code == 0
    assert mtplx("forge", "resume", "mine", "--detach").code == 0
    assert [(asked.run, asked.detach) for asked in daemon.requests("Resume")] == [
        (RUN, False),
        ("mine", True),
    ]
    assert mtplx("forge", "cancel", "mine", "--json").document == {
        "run": RUN, "stopped": True, "bytes_freed": 276_000_000
    }  # fmt: skip
    assert [asked.run for asked in daemon.requests("Forge.Cancel")] == ["mine"]


def test_a_probe_says_its_verdict_and_why(mtplx, daemon: FakeDaemon) -> None:
    reasons = ["no file of it holds an MTP head"]
    daemon.probed = forge_pb2.ProbeReply(
        verdict="no_mtp_head", reasons=reasons, document_json=json.dumps({"family": "llama", "licence": None})
    )
    assert mtplx("forge", "probe", "org/plain", "--json").document == {
        "family": "llama", "licence": None, "verdict": "no_mtp_head", "reasons": reasons
    }  # fmt: skip
    assert mtplx("forge", "probe", "org/plain").out.splitlines() == [
        "family      llama",
        "licence     none stated",
        "because     no file of it holds an MTP head",
        "no_mtp_head",
    ]


def test_a_pack_that_would_be_refused_says_so_when_nothing_is_sent(mtplx, daemon: FakeDaemon) -> None:
    daemon.refusals = [{"what": "it is not verified", "where": "mine", "fix": "run `mtplx verify mine`"}]
    result = mtplx("forge", "publish", "mine", "ada/mine", "--dry-run")
    assert result.code == 3
    assert result.err.splitlines()[-1] == (
        "error: it would not be published, it is not verified (mine): run `mtplx verify mine`"
    )
    daemon.refusals = []
    assert mtplx("forge", "publish", "mine", "ada/mine").code == 0
    assert [asked.dry_run for asked in daemon.requests("Publish")] == [True, False]
