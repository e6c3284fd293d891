"""Statuses become typed errors that carry what, value, fix and the details."""

from __future__ import annotations

from typing import Any

import pytest
from mtplx_client import Client, Text, errors
from support.fake_daemon import Failure, FakeDaemon, text


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_each_code_has_its_class(client: Client, daemon: FakeDaemon, code: str) -> None:
    daemon.failures["Show"] = Failure(code, "cannot show", "it", "look again")
    with pytest.raises(errors.BY_CODE[code]) as caught:
        client.show("smollm2-135m")
    error = caught.value
    assert (error.code, error.what, error.value, error.fix) == (code, "cannot show", "it", "look again")
    assert str(error) == "cannot show (it): look again"


def test_memory_errors_carry_needed_available_and_the_retry_delay(client: Client, daemon: FakeDaemon) -> None:
    daemon.failures["Load"] = Failure(
        "RESOURCE_EXHAUSTED", "no memory", needed=2 << 30, available=1 << 30, retry_s=2.5
    )
    with pytest.raises(errors.ResourceExhausted) as caught:
        client.load("smollm2-135m")
    assert (caught.value.needed, caught.value.available) == (2 << 30, 1 << 30)
    assert caught.value.retry_after_s == 2.5


def test_bad_values_name_their_field(client: Client, daemon: FakeDaemon) -> None:
    daemon.failures["Generate"] = Failure("INVALID_ARGUMENT", "out of range", "3", field="top_p")
    with pytest.raises(errors.InvalidArgument) as caught:
        client.complete("hi", top_p=3)
    assert caught.value.field == "top_p"


def test_a_daemon_that_says_it_is_starting_is_not_a_missing_one(client: Client, daemon: FakeDaemon) -> None:
    client.status()
    daemon.failures["Status"] = Failure("UNAVAILABLE", "the daemon is draining", fix="try again")
    with pytest.raises(errors.Unavailable) as caught:
        client.status()
    assert not isinstance(caught.value, errors.NoDaemon)
    assert len(daemon.requests("Status")) == 2


def test_a_stream_that_breaks_off_keeps_what_came_before(client: Client, daemon: FakeDaemon) -> None:
    def breaks(_request: object, context: Any) -> Any:
        yield text("half", 1)
        Failure("DATA_LOSS", "a file is damaged", "x.safetensors").abort(context)

    daemon.answer = breaks
    events = client.generate("hi")
    assert next(events) == Text("half", (1,))
    with pytest.raises(errors.DataLoss, match=r"x\.safetensors"):
        next(events)


def test_an_error_of_the_library_is_one_line_without_a_traceback(client: Client, daemon: FakeDaemon) -> None:
    def bug(_request: object, _context: object) -> Any:
        raise RuntimeError("first\nsecond")
        yield

    daemon.answer = bug
    with pytest.raises(errors.Internal) as caught:
        client.complete("hi")
    assert "\n" not in str(caught.value)


def test_a_message_above_grpcs_limit_is_the_users_to_shorten(client: Client) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"longer than a message may be.*shorten"):
        client.complete("x" * (65 << 20))
