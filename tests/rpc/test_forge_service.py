"""Builds over the wire, in real worker processes with quick steps: begun, followed, left, cancelled, resumed."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from mtplx_proto.v1 import forge_pb2
from support.fake_forge import journal, make_source, steer
from support.rpc_rig import Wire, eventually, wired

Scenario = Callable[[Wire], Awaitable[None]]
ALL = ["fetch", "convert", "extract", "calibrate", "measure", "verify"]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a scenario on a served rig; workers inherit the home."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            async with wired() as wire:
                monkeypatch.setenv("MTPLXD_HOME", str(wire.home.root))
                make_source(wire.home.root / "source")
                await scenario(wire)

        asyncio.run(main())

    return run


def build(wire: Wire, **fields: Any) -> Any:
    asked = {"source": str(wire.home.root / "source"), "name": "mine", **fields}
    return wire.builds.Build(forge_pb2.BuildRequest(**asked))


async def read_all(stream: Any) -> list[Any]:
    events = []
    while (event := await stream.read()) is not grpc.aio.EOF:
        events.append(event)
    return events


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def runs(wire: Wire) -> list[Any]:
    return list((await wire.builds.Runs(forge_pb2.RunsRequest())).runs)


def publishes(wire: Wire) -> bool:
    """Whether a worker of this home publishes."""
    lines = os.popen("ps -axww -o args=").read().splitlines()
    return any(" publish mine " in line and str(wire.home.root) in line for line in lines)


async def read_until(stream: Any, message: str) -> Any:
    """The first news with these words."""
    while message not in (event := await stream.read()).step.message:
        assert event is not grpc.aio.EOF
    return event.step


def test_a_build_is_told_step_by_step_to_its_outcome(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        *steps, last = await read_all(build(wire))
        assert {event.step.run for event in steps} == {last.outcome.run}
        order = list(dict.fromkeys(event.step.step for event in steps))
        assert order[0] == "queue"
        assert order[-1] == "seal"
        assert (last.outcome.verdict, last.outcome.pack, last.outcome.depth) == ("depth_wins", "mine", 2)
        assert [row.ratio for row in last.outcome.rows] == [1.0, 1.42]
        assert last.outcome.machine.chip == "M4"
        assert last.outcome.notes == ["text only: 2 tensors are left out", "depth 9 clipped to 8"]
        assert json.loads(last.outcome.details_json)["sealed"]["tier"] == "verified"
        [run] = await runs(wire)
        assert (run.run, run.status, run.verdict, run.resumable) == (
            last.outcome.run,
            "done",
            "depth_wins",
            False,
        )
        again = await read_all(wire.builds.Follow(forge_pb2.FollowRequest(run="mine")))
        assert [event.outcome.verdict for event in again] == ["depth_wins"]
        error = await refusal(read_all(wire.builds.Resume(forge_pb2.ResumeRequest(run="mine"))))
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION

    play(scenario)


def test_a_build_outlives_who_began_it_and_who_comes_later_hears_its_end(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        steer(hang="convert")
        first = build(wire)
        step = await read_until(first, "hangs")
        first.cancel()
        followers = [wire.builds.Follow(forge_pb2.FollowRequest(run=run)) for run in ("", "mine", step.run)]
        for follower in followers:
            assert (await follower.read()).step.run == step.run
        [run] = await runs(wire)
        assert (run.status, run.step) == ("running", "convert")
        steer()
        for follower in followers:
            assert (await read_all(follower))[-1].outcome.verdict == "depth_wins"

    play(scenario)


def test_a_detached_stream_ends_and_its_build_does_not(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        events = await read_all(build(wire, detach=True))
        assert [event.WhichOneof("event") for event in events] == ["step"]
        events = await read_all(wire.builds.Resume(forge_pb2.ResumeRequest(run=events[0].step.run)))
        assert events[-1].outcome.pack == "mine"
        assert journal() == ALL

    play(scenario)


def test_one_build_of_a_name_at_a_time_and_one_at_work(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        steer(hang="convert")
        first = build(wire)
        await read_until(first, "hangs")
        error = await refusal(read_all(build(wire)))
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "a build of this name is in work (mine)" in error.details()
        second = build(wire, name="other")
        assert (await second.read()).step.message == "waits for its turn"
        assert [(run.name, run.status) for run in await runs(wire)] == [
            ("mine", "running"),
            ("other", "queued"),
        ]
        steer()
        assert (await read_all(first))[-1].outcome.pack == "mine"
        assert (await read_all(second))[-1].outcome.pack == "other"

    play(scenario)


@pytest.mark.parametrize("step", ["fetch", "convert", "extract", "calibrate", "train", "measure", "verify"])
def test_a_cancel_in_any_step_leaves_nothing(play: Any, step: str) -> None:
    async def scenario(wire: Wire) -> None:
        steer(hang=step)
        stream = build(wire, train=step == "train")
        run = (await read_until(stream, "hangs")).run
        answer = await wire.builds.Cancel(forge_pb2.CancelRunRequest(run="mine"))
        assert (answer.run, answer.stopped) == (run, True)
        error = await refusal(read_all(stream))
        assert error.code() == grpc.StatusCode.CANCELLED
        assert await runs(wire) == []
        assert list(wire.home.runs.iterdir()) == []
        assert [path.name for path in wire.home.packs.iterdir()] == ["a"]
        steer()
        assert (await read_all(build(wire)))[-1].outcome.pack == "mine"

    play(scenario)


def test_a_build_that_waits_for_its_turn_is_cancelled_at_once(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        steer(hang="fetch")
        first = build(wire)
        await read_until(first, "hangs")
        second = build(wire, name="other")
        await second.read()
        assert (await wire.builds.Cancel(forge_pb2.CancelRunRequest(run="other"))).stopped
        assert (await refusal(read_all(second))).code() == grpc.StatusCode.CANCELLED
        assert [(run.name, run.status) for run in await runs(wire)] == [("mine", "running")]
        steer()
        assert (await read_all(first))[-1].outcome.pack == "mine"
        assert journal() == ALL

    play(scenario)


def test_of_two_that_ask_for_one_name_at_once_only_one_leaves_a_run(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        steer(hang="fetch")
        create, both = wire.forge._create, threading.Barrier(2)

        def create_together(recipe: Any) -> Any:
            both.wait(30)
            return create(recipe)

        wire.forge._create = create_together  # type: ignore[method-assign]
        streams = [build(wire), build(wire)]
        found = await asyncio.gather(*(stream.read() for stream in streams), return_exceptions=True)
        refused = [one for one in found if isinstance(one, grpc.aio.AioRpcError)]
        assert [error.code() for error in refused] == [grpc.StatusCode.FAILED_PRECONDITION]
        assert "a build of this name is in work (mine)" in refused[0].details()
        assert [run.status for run in await runs(wire)] == ["running"]
        await wire.builds.Cancel(forge_pb2.CancelRunRequest(run="mine"))
        assert list(wire.home.runs.iterdir()) == []

    play(scenario)


def test_prompts_are_looked_at_before_anything_is_fetched_and_kept_as_they_were(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        prompts = wire.home.root / "asked.txt"
        asked = {"train": True, "training": {"prompts": str(prompts)}}
        for text in (None, "one\ntwo\n"):
            if text:
                prompts.write_text(text)
            error = await refusal(read_all(build(wire, **asked)))
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "prompts" in error.details()
        assert await runs(wire) == []
        prompts.write_text("".join(f"What is {place}?\n" for place in range(16)))
        steer(hang="fetch")
        stream = build(wire, **asked)
        run = (await read_until(stream, "hangs")).run
        prompts.unlink()
        kept = wire.home.runs / run / "prompts" / "asked.txt"
        assert kept.read_text().startswith("What is 0?")
        steer()
        last = (await read_all(stream))[-1].outcome
        assert last.pack == "mine"
        trained = json.loads((wire.home.packs / "mine" / "trained.json").read_text())
        assert trained["prompts"] == str(kept)
        assert not kept.exists()

    play(scenario)


def test_a_failed_build_says_why_is_listed_and_goes_on(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        steer(kill="extract")
        error = await refusal(read_all(build(wire)))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "the build was killed (signal 9)" in error.details()
        [run] = await runs(wire)
        assert (run.status, run.step, run.resumable) == ("failed", "extract", True)
        assert run.bytes > 10_000
        assert "the build was killed" in run.error
        error = await refusal(read_all(wire.builds.Follow(forge_pb2.FollowRequest(run="mine"))))
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        steer()
        assert (await read_all(wire.builds.Resume(forge_pb2.ResumeRequest(run="mine"))))[
            -1
        ].outcome.pack == "mine"
        assert journal() == ["fetch", "convert", "extract", "extract", "calibrate", "measure", "verify"]

    play(scenario)


def test_a_daemon_that_stops_leaves_builds_to_be_resumed(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        steer(hang="convert")
        working = build(wire)
        run = (await read_until(working, "hangs")).run
        waiting = build(wire, name="other")
        await waiting.read()
        wire.edge.drain()
        wire.forge.stop()
        for stream in (working, waiting):
            error = await refusal(read_all(stream))
            assert error.code() == grpc.StatusCode.UNAVAILABLE
        assert await wire.edge.wait_quiet(30)
        listed = await runs(wire)
        assert [(one.status, one.resumable) for one in listed] == [("interrupted", True)] * 2
        assert listed[0].run == run

    play(scenario)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "a/b"}, "name"),
        ({"source": ""}, "source"),
        ({"body_bits": 7}, "body_bits"),
        ({"head_bits": 4}, "head_bits"),
        ({"training": {"prompts": "relative.jsonl"}}, "training.prompts"),
    ],
)
def test_what_no_build_can_have_is_refused_before_it_begins(
    play: Any, fields: dict[str, Any], field: str
) -> None:
    async def scenario(wire: Wire) -> None:
        error = await refusal(read_all(build(wire, **fields)))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert field.encode() in dict(error.trailing_metadata())["grpc-status-details-bin"]
        assert list(wire.home.runs.iterdir()) == []

    play(scenario)


def test_names_that_mean_nothing_are_refused(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        (wire.home.packs / "taken").mkdir()
        error = await refusal(read_all(build(wire, name="taken")))
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        for call in (
            read_all(wire.builds.Follow(forge_pb2.FollowRequest())),
            read_all(wire.builds.Follow(forge_pb2.FollowRequest(run="nobody"))),
            read_all(wire.builds.Resume(forge_pb2.ResumeRequest(run="nobody"))),
            wire.builds.Cancel(forge_pb2.CancelRunRequest(run="nobody")),
        ):
            assert (await refusal(call)).code() == grpc.StatusCode.NOT_FOUND
        for call in (
            wire.builds.Cancel(forge_pb2.CancelRunRequest()),
            read_all(wire.builds.Resume(forge_pb2.ResumeRequest(run=" "))),
            wire.builds.Probe(forge_pb2.ProbeRequest()),
        ):
            assert (await refusal(call)).code() == grpc.StatusCode.INVALID_ARGUMENT

    play(scenario)


def test_a_run_whose_records_are_damaged_is_listed_and_can_be_cancelled(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        steer(fail="convert")
        await refusal(read_all(build(wire)))
        [run] = await runs(wire)
        (wire.home.runs / run.run / "state.json").write_text("{")
        [run] = await runs(wire)
        assert run.status == "failed"
        assert "state cannot be read" in run.error
        assert not (await wire.builds.Cancel(forge_pb2.CancelRunRequest(run=run.run))).stopped
        assert await runs(wire) == []

    play(scenario)


def test_probes_and_publications_are_answered(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        reply = await wire.builds.Probe(forge_pb2.ProbeRequest(name="org/model"))
        assert (reply.verdict, json.loads(reply.document_json)["name"]) == ("forgeable", "org/model")
        error = await refusal(wire.builds.Probe(forge_pb2.ProbeRequest(name="org/missing")))
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        await read_all(build(wire))
        asked = forge_pb2.PublishRequest(name="mine", repo="ada/mine", dry_run=True)
        progress, last = await read_all(wire.builds.Publish(asked))
        assert (progress.progress.done, progress.progress.total) == (1, 2)
        assert json.loads(last.published.document_json) == {
            "repo": "ada/mine",
            "pack": "mine",
            "dry_run": True,
        }
        error = await refusal(
            read_all(wire.builds.Publish(forge_pb2.PublishRequest(name="nobody", repo="ada/x")))
        )
        assert error.code() == grpc.StatusCode.NOT_FOUND

    play(scenario)


def test_who_leaves_a_publication_ends_it_without_a_word_in_the_log(
    play: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(wire: Wire) -> None:
        await read_all(build(wire))
        steer(hang="publish")
        stream = wire.builds.Publish(forge_pb2.PublishRequest(name="mine", repo="ada/mine"))
        assert (await stream.read()).progress.message == "mtp.safetensors"
        assert publishes(wire)
        stream.cancel()
        await eventually(lambda: not publishes(wire))
        steer()
        again = forge_pb2.PublishRequest(name="mine", repo="ada/mine", dry_run=True)
        assert (await read_all(wire.builds.Publish(again)))[-1].published.repo == "ada/mine"
        gc.collect()

    play(scenario)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_what_a_kill_left_of_runs_goes_when_a_daemon_starts(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        (wire.home.runs / ".trash-build-20260131-120000-0a1b2c").mkdir()
        wire.forge.prepare()
        assert list(wire.home.runs.iterdir()) == []

    play(scenario)


def test_a_workers_memory_counts_while_it_works(play: Any) -> None:
    async def scenario(wire: Wire) -> None:
        steer(hang="convert")
        stream = build(wire)
        await read_until(stream, "hangs")
        assert wire.forge.worker_bytes > 10 << 20
        await wire.builds.Cancel(forge_pb2.CancelRunRequest(run="mine"))
        await eventually(lambda: wire.forge.worker_bytes == 0)

    play(scenario)
