"""A daemon with scripted answers: a real gRPC server on a real Unix socket, without models.

A test sets what it answers (`status`, `packs`, `answer`, `failures`, …) and reads what was asked (`asked`,
`metadata`, `cancelled`).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from mtplx_proto.v1 import (
    common_pb2,
    forge_pb2,
    forge_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    sessions_pb2_grpc,
    store_pb2,
    store_pb2_grpc,
    system_pb2,
    system_pb2_grpc,
    tuning_pb2,
    tuning_pb2_grpc,
)
from mtplxd import PROTOCOL, __version__
from support.fake_builds import PROBED, FakeForge, listed, steps, won
from support.fake_store import FakeSessions, FakeStore, kept, rivers_session
from support.fake_tuning import tuned

GenerateScript = Callable[[generation_pb2.GenerateRequest, grpc.ServicerContext], Iterator[Any]]


@dataclass(frozen=True)
class Failure:
    """A refusal with the details that the daemon sends."""

    code: str
    what: str
    value: str = ""
    fix: str = ""
    field: str = ""
    needed: int = 0
    available: int = 0
    retry_s: float = 0.0
    reason: str = ""

    def abort(self, context: grpc.ServicerContext) -> None:
        info = error_details_pb2.ErrorInfo(reason=self.reason or self.code, domain="mtplxd")
        said = {"what": self.what, "value": self.value, "fix": self.fix}
        if self.needed:
            said |= {"needed": str(self.needed), "available": str(self.available)}
        info.metadata.update({key: text for key, text in said.items() if text})
        details: list[Any] = [info]
        if self.field:
            violation = error_details_pb2.BadRequest.FieldViolation(field=self.field)
            details.append(error_details_pb2.BadRequest(field_violations=[violation]))
        if self.retry_s:
            delay = duration_pb2.Duration()
            delay.FromNanoseconds(int(self.retry_s * 1e9))
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        code = getattr(grpc.StatusCode, self.code)
        status = status_pb2.Status(code=code.value[0], message=self.what)
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        context.abort_with_status(rpc_status.to_status(status))


def when_ended(context: grpc.ServicerContext, do: Callable[[], None]) -> None:
    """Calls `do` when the call ends; at once when it has ended, which gRPC alone would never do."""
    if not context.add_callback(do):
        do()


def text(piece: str, *tokens: int) -> generation_pb2.GenerateEvent:
    return generation_pb2.GenerateEvent(text=generation_pb2.TextDelta(text=piece, tokens=tokens))


def logprobs(*entries: tuple[int, float, bytes], law: float | None = None) -> generation_pb2.GenerateEvent:
    """An entry (id, log-probability, bytes) a token; each names itself as its only alternative."""
    tokens = [
        generation_pb2.TokenLogprob(
            token=token,
            logprob=value,
            text=piece,
            top=[generation_pb2.TopLogprob(token=token, logprob=value, text=piece)],
            law=law,
        )
        for token, value, piece in entries
    ]
    return generation_pb2.GenerateEvent(logprobs=generation_pb2.Logprobs(tokens=tokens))


def progress(stage: str, done: int, total: int, unit: str = "tokens") -> generation_pb2.GenerateEvent:
    step = common_pb2.Progress(stage=stage, done=done, total=total, unit=unit)
    return generation_pb2.GenerateEvent(progress=step)


def final(reason: str = "stop", origin: str = "eos", **fields: Any) -> generation_pb2.GenerateEvent:
    stats = common_pb2.Stats(
        ttft_s=0.25,
        tok_s=80.0,
        rounds=4,
        drafted=8,
        accepted=5,
        acceptance_by_position=[0.75, 0.5],
        judged_by_position=[4, 4],
        accepted_by_position=[3, 2],
        depth=2,
        exactness="exact",
    )
    values: dict[str, Any] = {
        "usage": common_pb2.Usage(prompt_tokens=12, completion_tokens=9),
        "sampler": common_pb2.Sampler(
            temperature=0.6, top_p=0.95, seed=7, acceptance="token", repetition_penalty=1
        ),
        "stats": stats,
        "model": "smollm2-135m",
    }
    values |= fields
    return generation_pb2.GenerateEvent(
        final=generation_pb2.Final(finish_reason=reason, stop_origin=origin, **values)
    )


def rivers(request: generation_pb2.GenerateRequest, context: grpc.ServicerContext) -> Iterator[Any]:
    """The answer that a fake daemon gives unless told otherwise."""
    del request, context
    yield progress("prefill", 12, 12)
    yield text("The Rhine,", 11, 12, 13)
    yield text("", 14)
    yield text(" the Elbe.", 15, 16)
    yield final()


def smollm2() -> models_pb2.Pack:
    return models_pb2.Pack(
        name="smollm2-135m",
        path="/home/ada/.mtplxd/packs/smollm2-135m",
        bytes=276_000_000,
        family="llama",
        tier="unverified",
        model_type="llama",
        bytes_body=269_000_000,
        bytes_head=7_000_000,
        head_layout="adapter",
        depth_max=8,
        context=8192,
        fingerprint_body="sha256:0b0d",
        fingerprint_head="sha256:4ead",
    )


def resident() -> models_pb2.Resident:
    return models_pb2.Resident(
        name="smollm2-135m",
        state="ready",
        tier="unverified",
        bytes_body=538_000_000,
        bytes_head=14_000_000,
        depth=2,
        depth_max=8,
        keep_alive_s=-1,
        path="/home/ada/.mtplxd/packs/smollm2-135m",
        family="llama",
    )


def serving(pid: int = 4321) -> system_pb2.StatusReply:
    return system_pb2.StatusReply(
        version="0.1.0",
        pid=pid,
        uptime_s=754.0,
        socket="/home/ada/.mtplxd/run/mtplxd.sock",
        home="/home/ada/.mtplxd",
        state="serving",
        blas=system_pb2.Blas(name="OpenBLAS", threads=2, gflops=151.5, path="/usr/lib/libopenblas.so.0"),
        models=[resident()],
        queue=system_pb2.Queue(running=1, waiting=2),
        memory=system_pb2.Memory(total=16 << 30, plan=12 << 30, used=3 << 30, pressure=0.25),
        counters=system_pb2.Counters(requests=5, completion_tokens=640, since_unix_s=1.7e9),
        python="/opt/mtplxd/bin/python3",
        engine=system_pb2.EngineState(rows=1, heartbeat_age_s=0.04, alive=True),
        store=system_pb2.StoreState(bytes=8_040_000, blocks=40, sessions=1, state="on"),
        thermal=system_pb2.Thermal(
            mode="auto", state="nominal", helper="not-installed", fan_mode="not-available"
        ),
    )


def cooled() -> system_pb2.Thermal:
    """A Mac whose fans are held for a measurement."""
    return system_pb2.Thermal(
        mode="smart", state="fair", helper="ready", fan_state="held", power="normal", fan_mode="held",
        lease=system_pb2.FanLease(left_s=8.25, reason="a measurement"),
        fans=[system_pb2.Fan(rpm=5790.5, target=5800, min=1200, max=5800) for _ in range(2)],
    )  # fmt: skip


class FakeDaemon:
    """One fake daemon. `start` and `stop` may be called again: the socket stays the same."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.protocol: str | None = str(PROTOCOL)
        self.version = __version__
        self.status = serving()
        self.fans = cooled()
        self.packs = [smollm2()]
        self.damaged: list[models_pb2.Damaged] = []
        self.answer: GenerateScript = rivers
        self.progress: list[common_pb2.Progress] = []
        self.prompts = ["Name three rivers.", "Write a haiku."]
        self.sessions = [rivers_session()]
        self.kept = kept()
        self.verified = store_pb2.StoreVerified(blocks=40, bytes=8_000_000)
        self.measurement = tuning_pb2.Measurement()
        self.verification = tuning_pb2.Verification()
        self.tuning = tuned()
        self.build_steps = steps()
        self.outcome: forge_pb2.BuildOutcome | None = won()
        self.builds = listed()
        self.refusals: list[dict[str, str]] = []
        self.probed = forge_pb2.ProbeReply(
            verdict="forgeable", reasons=["it ships an MTP head"], document_json=json.dumps(PROBED)
        )
        self.failures: dict[str, Failure] = {}
        self.asked: list[tuple[str, Any]] = []
        self.metadata: list[dict[str, str]] = []
        self.cancelled = threading.Event()
        self.watching = threading.Event()
        self.let_go = threading.Event()
        self.on_shutdown: Callable[[], None] = lambda: None
        self.on_enter: Callable[[], object] = lambda: None
        self._server: grpc.Server | None = None

    def start(self) -> FakeDaemon:
        """Serve on the socket."""
        server = grpc.server(ThreadPoolExecutor(max_workers=16))
        servicer = _Servicer(self)
        system_pb2_grpc.add_SystemServicer_to_server(servicer, server)
        models_pb2_grpc.add_ModelsServicer_to_server(servicer, server)
        generation_pb2_grpc.add_GenerationServicer_to_server(servicer, server)
        tuning_pb2_grpc.add_TuningServicer_to_server(servicer, server)
        forge_pb2_grpc.add_ForgeServicer_to_server(FakeForge(self), server)
        sessions_pb2_grpc.add_SessionsServicer_to_server(FakeSessions(self), server)
        store_pb2_grpc.add_StoreServicer_to_server(FakeStore(self), server)
        assert server.add_insecure_port(f"unix:{self.socket}") == 1
        server.start()
        self._server = server
        return self

    def stop(self) -> None:
        """Close every connection and the socket, as a daemon that died."""
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None
        self.socket.unlink(missing_ok=True)

    def no_session(self, name: str) -> Failure:
        """The refusal of a name that no session has."""
        return Failure("NOT_FOUND", "no such session", name, "see `mtplx sessions ls`")

    def requests(self, method: str) -> list[Any]:
        """The requests of one method, in order."""
        return [request for name, request in self.asked if name == method]

    def enter(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        """Note a call, greet, and refuse where the test says so."""
        self.asked.append((method, request))
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
        if self.protocol is not None:
            context.send_initial_metadata(
                (("mtplx-protocol", self.protocol), ("mtplx-version", self.version))
            )
        self.on_enter()
        if method in self.failures:
            self.failures[method].abort(context)


@contextlib.contextmanager
def fake_daemon(started: bool = True) -> Iterator[FakeDaemon]:
    """A fake daemon in a short owner-only folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="mtplx-", dir="/tmp"))
    daemon = FakeDaemon(folder / "d.sock")
    if started:
        daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


class _Servicer(
    system_pb2_grpc.SystemServicer,
    models_pb2_grpc.ModelsServicer,
    generation_pb2_grpc.GenerationServicer,
    tuning_pb2_grpc.TuningServicer,
):
    """Answers from the fake daemon's attributes."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    def Hello(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Hello", request, context)
        return system_pb2.HelloReply(version=self._daemon.version, protocol=PROTOCOL, pid=4321)

    def Status(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Status", request, context)
        return self._daemon.status

    def Watch(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Watch", request, context)
        ended = threading.Event()
        when_ended(context, ended.set)
        yield self._daemon.status
        self._daemon.watching.set()
        ended.wait()

    def Shutdown(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Shutdown", request, context)
        self._daemon.on_shutdown()
        return system_pb2.ShutdownReply(pid=self._daemon.status.pid)

    def Cancel(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Cancel", request, context)
        return system_pb2.CancelReply(found=request.id == "r1")

    def Fans(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Fans", request, context)
        return self._daemon.fans

    def SetFans(self, request: Any, context: Any) -> Any:
        self._daemon.enter("SetFans", request, context)
        self._daemon.fans.mode = request.mode
        return self._daemon.fans

    def HoldFans(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("HoldFans", request, context)
        ended = threading.Event()
        when_ended(context, ended.set)
        yield self._daemon.fans
        ended.wait()
        self._daemon.let_go.set()

    def Pull(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Pull", request, context)
        for step in self._daemon.progress:
            yield models_pb2.PullEvent(progress=step)
        yield models_pb2.PullEvent(pack=self._daemon.packs[0])

    def List(self, request: Any, context: Any) -> Any:
        self._daemon.enter("List", request, context)
        return models_pb2.ListReply(packs=self._daemon.packs, damaged=self._daemon.damaged)

    def Show(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Show", request, context)
        return models_pb2.ShowReply(pack=self._daemon.packs[0], manifest_json='{"arch_id": "llama"}')

    def Remove(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Remove", request, context)
        pack = self._daemon.packs[0]
        return models_pb2.RemoveReply(name=pack.name, bytes_freed=pack.bytes, pack=pack)

    def Load(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Load", request, context)
        for step in self._daemon.progress:
            yield models_pb2.LoadEvent(progress=step)
        yield models_pb2.LoadEvent(resident=self._daemon.status.models[0])

    def Unload(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Unload", request, context)
        model = self._daemon.status.models[0]
        freed = model.bytes_body + model.bytes_head
        return models_pb2.UnloadReply(name=model.name, bytes_freed=freed, resident=model)

    def Generate(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Generate", request, context)
        finished = False

        def ended() -> None:
            if not finished:
                self._daemon.cancelled.set()

        when_ended(context, ended)
        yield from self._daemon.answer(request, context)
        finished = True

    def Measure(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Measure", request, context)
        for step in self._daemon.progress:
            yield tuning_pb2.MeasureEvent(progress=step)
        yield tuning_pb2.MeasureEvent(measurement=self._daemon.measurement)

    def Verify(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Verify", request, context)
        for step in self._daemon.progress:
            yield tuning_pb2.VerifyEvent(progress=step)
        yield tuning_pb2.VerifyEvent(verification=self._daemon.verification)

    def Tune(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Tune", request, context)
        finished = False

        def ended() -> None:
            if not finished:
                self._daemon.cancelled.set()

        when_ended(context, ended)
        for step in self._daemon.progress:
            yield tuning_pb2.TuneEvent(progress=step)
        yield tuning_pb2.TuneEvent(reply=self._daemon.tuning)
        finished = True

    def Summarise(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Summarise", request, context)
        return self._daemon.measurement

    def Suite(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Suite", request, context)
        count = request.prompts or len(self._daemon.prompts)
        reply = tuning_pb2.SuiteReply(suite=request.suite or "mixed")
        for index, prompt in enumerate(self._daemon.prompts[:count]):
            reply.prompts.add(index=index, text=prompt, seed=100 + index)
        return reply
