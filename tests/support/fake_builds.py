"""The fake daemon's Forge service: a build in three steps that wins; what a test sets is answered instead."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from mtplx_proto.v1 import common_pb2, forge_pb2, forge_pb2_grpc
from support.fake_tuning import tuned

RUN = "build-20260131-120000-0a1b2c"


def steps() -> list[forge_pb2.BuildStep]:
    """What a build tells of itself."""
    step = forge_pb2.BuildStep
    return [
        step(run=RUN, step="queue", message="waits for its turn"),
        step(
            run=RUN, step="fetch", progress=0.5, done=1, total=2, eta_s=12.0, message="model-00001-of-00002"
        ),
        step(run=RUN, step="convert", progress=1.0, done=8, total=8),
        step(run=RUN, step="measure", stage="load", progress=0.25, done=9, total=36, eta_s=90.0),
    ]


def won(**fields: Any) -> forge_pb2.BuildOutcome:
    """An outcome; fields may be given."""
    measured = tuned()
    details = {
        "source": {"repo": "org/model", "revision": "c0ffee", "licence": "mit"},
        "conversion": {"quality": {"top1": 0.97, "kl": 0.012, "tokens": 4096}},
        "head": {"tensors": 12},
        "calibration": {"status": "confirmed", "settings": {"tap": "post"}},
        "sealed": {"pack": "mine", "tier": "verified"},
    }
    values: dict[str, Any] = {
        "run": RUN,
        "name": "mine",
        "verdict": "depth_wins",
        "pack": "mine",
        "message": "mine is made: `mtplx generate --model mine`",
        "rows": measured.rows,
        "machine": measured.machine,
        "drift": measured.drift,
        "depth": 2,
        "notes": ["depth 9 clipped to 8: the head's limit is 8"],
        "details_json": json.dumps(details),
        "took_s": 754.0,
    }
    return forge_pb2.BuildOutcome(**(values | fields))


PROBED: dict[str, Any] = {
    "ref": "org/model", "revision": "c0ffee", "family": "qwen3", "model_type": "qwen3_next", "depth_max": 8,
    "head": {"present": True, "layout": "namespace", "tensors": 15, "layers": 1, "depth_max": 8, "aliases": {}},
    "quantisation": {"method": "fp8", "bits": None, "group_size": None, "block": [128, 128]}, "licence": "mit",
    "bytes_body": 7_000_000_000, "bytes_head": 200_000_000, "bytes_source": 7_210_000_000,
    "bytes_download": 276_000_000, "notes": ["its vision tensors are left out"], "fits_this_machine": False,
    "next": "mtplx forge build org/model --name model-mtp",
    "memory": {"convert": 9, "run": 15_000_000_000, "disk": 14_400_000_000, "peak": 15_000_000_000,
               "available": 12_000_000_000},
}  # fmt: skip
"""As a daemon's probe answers, shortened."""


def lost(verdict: str = "no_depth_beats_plain") -> forge_pb2.BuildOutcome:
    """One that makes no pack."""
    outcome = won(verdict=verdict, pack="", message="no depth beats plain decoding here")
    outcome.failure_reasons.append("no depth beats plain decoding here")
    outcome.ClearField("depth")
    return outcome


def listed() -> list[forge_pb2.BuildRun]:
    """One run of each kind."""
    run = forge_pb2.BuildRun
    return [
        run(run="build-20260130-090000-00aa00", name="old", source="org/old", status="done", step="measure",
            verdict="throttled", failure_reasons=["plain decoding changed by -14%"], created_unix_s=1769763600,
            updated_unix_s=1769764600, resumable=True, bytes=276_000_000),
        run(run="build-20260130-093000-00dd00", name="deaf", source="org/deaf", status="done", step="calibrate",
            verdict="calibration_failed", failure_reasons=["the head has no drafts accepted"],
            created_unix_s=1769765400, updated_unix_s=1769766000, bytes=4_100),
        run(run="build-20260130-100000-00bb00", name="half", source="org/half", status="interrupted", step="convert",
            created_unix_s=1769767200, updated_unix_s=1769767300, resumable=True, bytes=4_900_000_000),
        run(run="build-20260130-110000-00cc00", name="full", source="org/full", status="failed", step="fetch",
            error="the disk is full (/home/ada): free some space", created_unix_s=1769770800,
            updated_unix_s=1769770900, resumable=True, bytes=30_000_000_000),
        run(run="build-20260130-113000-00ee00", status="failed", error="a run's state cannot be read", bytes=9_000),
        run(run=RUN, name="mine", source="org/model", status="running", step="fetch", progress=0.5, eta_s=12.0,
            message="model-00001-of-00002", created_unix_s=1769860800, updated_unix_s=1769860900),
    ]  # fmt: skip


class FakeForge(forge_pb2_grpc.ForgeServicer):
    """Answers from the fake daemon's `build_steps`, `outcome`, `builds` and `probed`."""

    def __init__(self, daemon: Any) -> None:
        self._daemon = daemon

    def Probe(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Probe", request, context)
        return self._daemon.probed

    def Build(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Build", request, context)
        yield from self._follow(context)

    def Follow(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Follow", request, context)
        yield from self._follow(context)

    def Resume(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Resume", request, context)
        yield from self._follow(context)

    def Runs(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Runs", request, context)
        return forge_pb2.RunsReply(runs=self._daemon.builds)

    def Cancel(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Forge.Cancel", request, context)
        return forge_pb2.CancelRunReply(run=RUN, stopped=True, bytes_freed=276_000_000)

    def Publish(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Publish", request, context)
        step = common_pb2.Progress(stage="publish", done=1, total=2, message="mtp.safetensors")
        yield forge_pb2.PublishEvent(progress=step)
        document: dict[str, Any] = {
            "repo": request.repo,
            "files": ["config.json", "mtp.safetensors"],
            "bytes": 276_000_000,
            "dry_run": request.dry_run,
        }
        if self._daemon.refusals:
            document["refusals"] = self._daemon.refusals
        yield forge_pb2.PublishEvent(
            published=forge_pb2.Published(repo=request.repo, document_json=json.dumps(document))
        )

    def _follow(self, context: Any) -> Iterator[Any]:
        for step in self._daemon.build_steps:
            yield forge_pb2.BuildEvent(step=step)
        if self._daemon.outcome is None:  # it goes on until the client leaves
            left = threading.Event()
            if context.add_callback(left.set):
                left.wait()
            return
        yield forge_pb2.BuildEvent(outcome=self._daemon.outcome)
