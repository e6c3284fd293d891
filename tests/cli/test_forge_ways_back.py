"""A build whose stream ends before it does says how it goes on, and in which run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import forge_pb2
from support.fake_builds import RUN, FakeForge, steps
from support.fake_daemon import Failure, FakeDaemon

BUILD = ("forge", "build", "org/model", "--name", "mine")
End = Callable[[Any], None]


def breaks(monkeypatch: pytest.MonkeyPatch, end: End, told: int = 2) -> None:
    """Every build's stream ends like this behind so much news."""

    def follow(_: FakeForge, context: Any) -> Iterator[Any]:
        for step in steps()[:told]:
            yield forge_pb2.BuildEvent(step=step)
        end(context)

    monkeypatch.setattr(FakeForge, "_follow", follow)


def lose(context: Any) -> None:
    """As a connection ends whose daemon is killed: without a word of ours."""
    context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


@pytest.mark.parametrize("command", [BUILD, ("forge", "resume", "mine"), ("forge", "runs", "--follow")])
def test_a_daemon_that_goes_leaves_a_build_that_is_resumed(
    mtplx, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    del daemon
    breaks(monkeypatch, lose)
    result = mtplx(*command)
    assert result.code == 4
    assert result.err.splitlines()[-1] == (
        f"error: the daemon is gone ({RUN}): start it with `mtplxd`, then `mtplx forge resume {RUN}`"
    )


def test_a_daemon_that_goes_before_a_build_has_begun_says_nothing_of_one(
    mtplx, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, lose, told=0)
    result = mtplx(*BUILD)
    assert result.code == 4
    assert "resume" not in result.err


@pytest.mark.parametrize(
    ("failure", "code", "fix"),
    [
        (
            Failure("UNAVAILABLE", "cannot reach", "the Hub", "check the network"),
            4,
            f"check the network, then `mtplx forge resume {RUN}`",
        ),
        (
            Failure("RESOURCE_EXHAUSTED", "the disk is full", "/home/ada", "free some space", needed=9),
            1,
            f"free some space, then `mtplx forge resume {RUN}`",
        ),
        (
            Failure("UNAVAILABLE", "the daemon is stopping", RUN, f"start it, then `mtplx forge resume {RUN}`"),
            4,
            f"start it, then `mtplx forge resume {RUN}`",
        ),
        (Failure("NOT_FOUND", "no such repository", "org/model", "check the name"), 1, "check the name"),
        (Failure("INVALID_ARGUMENT", "no layer fits", "x", "leave it out", field="overrides"), 2, "leave it out"),
    ],
    ids=lambda value: getattr(value, "what", None),
)  # fmt: skip
def test_what_passes_says_how_the_build_goes_on(
    mtplx, monkeypatch: pytest.MonkeyPatch, failure: Failure, code: int, fix: str
) -> None:
    breaks(monkeypatch, failure.abort)
    result = mtplx(*BUILD)
    assert result.code == code
    assert result.err.splitlines()[-1] == f"error: {failure.what} ({failure.value}): {fix}"


def test_who_watches_no_longer_than_a_time_leaves_the_build_at_work(mtplx, daemon: FakeDaemon) -> None:
    daemon.outcome = None
    result = mtplx(*BUILD, "--timeout", "1")
    assert result.code == 1
    assert f"error: the build goes on, it is watched no longer ({RUN}): `mtplx forge runs" in result.err
    assert daemon.requests("Forge.Cancel") == []


def test_a_list_of_a_run_that_is_not_there_is_an_error(mtplx) -> None:
    result = mtplx("forge", "runs", "nothing")
    assert (result.code, result.out) == (1, "")
    assert result.err == "error: no such run (nothing): see `mtplx forge runs`\n"


def test_a_refusal_of_no_file_names_none(mtplx, daemon: FakeDaemon) -> None:
    daemon.refusals = [{"what": "it states no licence", "where": "", "fix": "write one into the card"}]
    result = mtplx("forge", "publish", "mine", "ada/mine", "--dry-run")
    assert result.err.splitlines()[-1] == (
        "error: it would not be published, it states no licence: write one into the card"
    )
