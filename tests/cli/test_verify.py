"""`verify`: what is asked, what is said, and how it exits."""

from __future__ import annotations

import pytest
from mtplx_proto.v1 import tuning_pb2
from support.fake_daemon import FakeDaemon


@pytest.fixture(autouse=True)
def _verification(daemon: FakeDaemon) -> None:
    daemon.verification = tuning_pb2.Verification(
        model="smollm2-135m",
        shape_noise=2.5e-5,
        greedy=tuning_pb2.Identity(tokens=1536),
        coupled=tuning_pb2.Identity(
            tokens=3000,
            near_ties=1,
            found=[tuning_pb2.Divergence(prompt=1, depth=3, position=17, margin=1e-5, near_tie=True)],
        ),
        law=tuning_pb2.LawTest(
            test="chi-square of 16 cells",
            tokens=2016,
            statistic=14.5,
            p_value=0.49,
            power=0.97,
            alternative="a temperature 15 % too high",
        ),
        passed=True,
        recorded=True,
        depths=[0, 1, 2, 3],
        fingerprint_body="sha256:0b0d",
        fingerprint_head="sha256:4ead",
    )


def fail(daemon: FakeDaemon, *reasons: str) -> None:
    daemon.verification.passed = daemon.verification.recorded = False
    daemon.verification.failures.extend(reasons)


def test_the_daemon_is_asked_for_its_defaults(mtplx, daemon: FakeDaemon) -> None:
    assert mtplx("verify", "smollm2-135m").code == 0
    (asked,) = daemon.requests("Verify")
    assert asked == tuning_pb2.VerifyRequest(model="smollm2-135m")


def test_every_wish_reaches_the_daemon(mtplx, daemon: FakeDaemon) -> None:
    mtplx(
        "verify", "m", "--samples", "900", "--prompts", "2", "--max-tokens", "24", "--depths", "0,2", "--dry-run"
    )  # fmt: skip
    (asked,) = daemon.requests("Verify")
    assert asked == tuning_pb2.VerifyRequest(
        model="m", samples=900, prompts=2, max_tokens=24, depths=[0, 2], dry_run=True
    )


def test_the_document_has_the_fields_that_programs_rely_on(mtplx) -> None:
    result = mtplx("verify", "smollm2-135m", "--json")
    document = result.document
    assert set(document) >= {"shape_noise", "greedy", "coupled", "law", "passed"}
    assert document["shape_noise"] == 2.5e-5
    for part in (document["greedy"], document["coupled"]):
        assert set(part) >= {"tokens", "divergences", "near_ties"}
    assert document["coupled"]["near_ties"] == 1
    assert document["coupled"]["found"][0]["position"] == 17
    assert set(document["law"]) >= {"test", "p_value", "power"}
    assert document["passed"] is document["recorded"] is True
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_failed_verification_exits_3_with_a_line_for_each_reason(
    mtplx, daemon: FakeDaemon, json: list[str]
) -> None:
    fail(daemon, "greedy: 2 texts part from plain decoding", "law: p-value 1e-9, below 0.001")
    result = mtplx("verify", "smollm2-135m", *json)
    assert result.code == 3
    assert result.err.splitlines() == [
        "error: verification failed (greedy: 2 texts part from plain decoding)",
        "error: verification failed (law: p-value 1e-9, below 0.001)",
    ]
    if json:
        assert result.document["passed"] is False
        assert len(result.document["failures"]) == 2
    else:
        assert "1536" in result.out
        assert "smollm2-135m failed, not recorded" in result.out


def test_a_record_that_could_not_be_written_loses_nothing(mtplx, daemon: FakeDaemon) -> None:
    daemon.verification.recorded = False
    daemon.verification.unrecorded = "cannot write into the pack (/p): Permission denied"
    result = mtplx("verify", "smollm2-135m")
    assert result.code == 3
    assert "1536" in result.out
    assert "not recorded (cannot write into the pack (/p): Permission denied)" in result.err


def test_a_verification_that_was_not_to_be_recorded_is_a_success(mtplx, daemon: FakeDaemon) -> None:
    daemon.verification.recorded = False
    result = mtplx("verify", "smollm2-135m", "--dry-run")
    assert (result.code, result.err) == (0, "")
    assert "passed, not recorded" in result.out


@pytest.mark.parametrize(
    ("wish", "said"),
    [("--dry-run", "not recorded: a dry run"), ("--depths=1", "not recorded: depths were left out, so")],
)
def test_a_verdict_says_why_nothing_was_recorded(mtplx, daemon: FakeDaemon, wish: str, said: str) -> None:
    daemon.verification.recorded = False
    daemon.verification.incomplete = "depths were left out, so"
    result = mtplx("verify", "smollm2-135m", wish)
    assert result.code == 0
    assert said in result.out


def test_verify_needs_a_name(mtplx) -> None:
    assert mtplx("verify").code == 2
