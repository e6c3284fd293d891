"""A build's thread asks for measurements and verifications as a client does, and for their end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from mtplx_proto.v1 import common_pb2, tuning_pb2
from mtplxd.errors import Cancelled, FailedPrecondition, NotFound
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.packs.manifest import Manifest, write_manifest
from mtplxd.rpc import judging
from mtplxd.rpc.judging import Judge, measured_document
from support.fake_tuning import tuned

RECIPE = BuildRecipe(
    source="org/model", name="mine", depths=(1, 2), auto=True, quick=True, accept_throttled=True
)
LIMIT_S = 30.0


class FakeTuning:
    """Says one step and answers; or waits until it is cancelled."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.hangs = False
        self.begun, self.cancelled = threading.Event(), threading.Event()
        self.verification = tuning_pb2.Verification(passed=True, recorded=True, depths=[0, 1])
        self.error: Exception | None = None

    async def run_tune(self, request: Any, write: Callable[[Any], Any]) -> Any:
        await self._work(request, write, tuning_pb2.TuneEvent)
        return tuned()

    async def run_verify(self, request: Any, write: Callable[[Any], Any]) -> Any:
        await self._work(request, write, tuning_pb2.VerifyEvent)
        return self.verification

    async def _work(self, request: Any, write: Callable[[Any], Any], event: Any) -> None:
        self.asked.append(request)
        await write(event(progress=common_pb2.Progress(stage="measure", done=3, total=9)))
        self.begun.set()
        if self.error:
            raise self.error
        if self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()


class FakeUnloads:
    """Unloads after so many refusals."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers, self.asked = list(answers), 0

    def unload(self, name: str) -> Future[None]:
        assert name == "/runs/r/pack"
        self.asked += 1
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        future: Future[None] = Future()
        future.set_result(None)
        return future


def ask(tuning: FakeTuning, work: Callable[[Judge], Any], residency: Any = None) -> Any:
    """What work in a thread of its own gives, while the loop runs."""

    async def main() -> Any:
        judge = Judge(tuning, residency)  # type: ignore[arg-type]
        return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, work, judge), LIMIT_S)

    return asyncio.run(main())


def test_a_measurement_is_a_tuning_that_was_not_made_before(tmp_path: Path) -> None:
    tuning, said = FakeTuning(), []
    found = ask(
        tuning, lambda judge: judge.measure(tmp_path, RECIPE, lambda *step: said.append(step), lambda: False)
    )
    assert tuning.asked == [
        tuning_pb2.TuneRequest(
            model=str(tmp_path), depths=[1, 2], auto=True, quick=True, accept_throttled=True, retune=True
        )
    ]
    assert said == [("measure", 3, 9, "")]
    assert (found["verdict"], found["depth"]) == ("depth_wins", 2)
    assert found["rows"][1]["acceptance_by_position"] == [0.5, 0.25]
    assert found["rows"][0]["acceptance_by_position"] == []
    assert found["machine"]["chip"] == "Apple M4"
    assert found["notes"] == ["depth 9 clipped to 8: the head's limit is 8"]


def test_numbers_of_64_bits_are_kept_as_numbers() -> None:
    reply = tuned()
    reply.machine.memory, reply.sampler.seed = 1 << 35, (1 << 64) - 1
    found = measured_document(reply)
    assert (found["machine"]["memory"], found["sampler"]["seed"]) == (1 << 35, (1 << 64) - 1)
    texts = {name: value for name, value in found["machine"].items() if str(value).isdigit()}
    assert all(type(value) is int for value in texts.values())


def test_the_winner_may_be_auto_or_nobody() -> None:
    reply = tuned(depth=None, verdict="no_depth_beats_plain")
    assert measured_document(reply)["depth"] is None
    reply.decision.auto = True
    assert measured_document(reply)["depth"] == "auto"


def test_a_verification_that_was_recorded_comes_with_its_record(tmp_path: Path) -> None:
    tuning = FakeTuning()
    record = {"passed": True, "depths": [0, 1]}
    write_manifest(tmp_path, Manifest({}).with_ours(verification=record))
    found = ask(tuning, lambda judge: judge.verify(tmp_path, RECIPE, lambda *_: None, lambda: False))
    assert (found["passed"], found["failures"], found["record"]) == (True, [], record)
    tuning.verification = tuning_pb2.Verification(passed=False, failures=["greedy: 3 texts part"])
    found = ask(tuning, lambda judge: judge.verify(tmp_path, RECIPE, lambda *_: None, lambda: False))
    assert (found["passed"], found["failures"], found["record"]) == (False, ["greedy: 3 texts part"], None)


@pytest.mark.parametrize("step", ["measure", "verify"])
def test_a_cancel_gives_the_engine_back(tmp_path: Path, step: str) -> None:
    tuning = FakeTuning()
    tuning.hangs = True

    def work(judge: Judge) -> None:
        with pytest.raises(Cancelled):
            getattr(judge, step)(tmp_path, RECIPE, lambda *_: None, tuning.begun.is_set)
        assert tuning.cancelled.wait(LIMIT_S)

    ask(tuning, work)


def test_what_a_measurement_raises_is_the_builds_to_tell(tmp_path: Path) -> None:
    tuning = FakeTuning()
    for error in (FailedPrecondition("there is no head to tune"), TimeoutError()):
        tuning.error = error
        with pytest.raises(type(error)):
            ask(tuning, lambda judge: judge.measure(tmp_path, RECIPE, lambda *_: None, lambda: False))


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([None], 1),
        ([FailedPrecondition("in use"), FailedPrecondition("in use"), None], 3),
        ([NotFound("not loaded")], 1),
        ([RuntimeError("cannot schedule new futures after shutdown")], 1),
    ],
    ids=["idle", "in use", "not there", "stopping"],
)
def test_a_measured_pack_leaves_memory(
    answers: list[Exception | None], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "POLL_S", 0.001)
    residency = FakeUnloads(*answers)
    ask(FakeTuning(), lambda judge: judge.release(Path("/runs/r/pack")), residency)
    assert residency.asked == asked
