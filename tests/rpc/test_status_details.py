"""Every typed error becomes one status with google.rpc details, in one line, small enough for headers."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from google.rpc import code_pb2, error_details_pb2
from mtplxd import errors
from mtplxd.errors import FailedPrecondition, Internal, InvalidArgument, MtplxError, ResourceExhausted
from mtplxd.rpc.errors import status_of, typed


def unpack(status: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for detail in status.details:
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo):
            if detail.Is(kind.DESCRIPTOR):
                found[kind.__name__] = kind.FromString(detail.value)
    return found


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MtplxError)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_has_its_code_and_says_what_value_and_fix(kind: type[MtplxError]) -> None:
    status = status_of(kind("what happened", 42, "do this"))
    assert code_pb2.Code.Name(status.code) == kind.code
    assert status.message == "what happened (42): do this"
    info = unpack(status)["ErrorInfo"]
    assert (info.domain, info.reason) == ("mtplxd", kind.code)
    assert {"what": "what happened", "value": "42", "fix": "do this"}.items() <= dict(info.metadata).items()


def test_a_bad_argument_names_its_field() -> None:
    violation = unpack(status_of(InvalidArgument("too hot", 9, field="temperature")))["BadRequest"]
    assert [entry.field for entry in violation.field_violations] == ["temperature"]


def test_exhaustion_says_needed_available_and_when_to_retry() -> None:
    status = status_of(ResourceExhausted("full", needed=7, available=3, retry_after_s=1.5))
    found = unpack(status)
    assert dict(found["ErrorInfo"].metadata)["needed"] == "7"
    assert dict(found["ErrorInfo"].metadata)["available"] == "3"
    assert found["RetryInfo"].retry_delay.ToMilliseconds() == 1500


def test_exhaustion_for_good_gives_no_retry() -> None:
    assert "RetryInfo" not in unpack(status_of(ResourceExhausted("too large", needed=7, available=3)))


def test_a_mismatch_of_versions_has_its_own_reason() -> None:
    status = status_of(FailedPrecondition("old", reason="VERSION_MISMATCH"))
    assert unpack(status)["ErrorInfo"].reason == "VERSION_MISMATCH"


def test_messages_are_one_bounded_line() -> None:
    status = status_of(InvalidArgument("bad\nthing", "é" * 100_000, "fix\tit"))
    assert "\n" not in status.message
    assert len(status.SerializeToString()) < 5000


def test_a_bug_gives_a_request_id_and_its_traceback_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        error = typed(ZeroDivisionError("secret detail"))
    assert isinstance(error, Internal)
    assert "secret" not in str(error)
    assert "request" in str(error)
    assert caplog.records[0].exc_info is not None


def test_a_typed_error_is_kept_and_its_value_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = InvalidArgument("unknown role", "words of a prompt")
    with caplog.at_level(logging.DEBUG):
        assert typed(error) is error
    assert "words of a prompt" not in caplog.text
