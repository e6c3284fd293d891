"""Builds as protobuf messages and back. Conversion, and checks of what the wire alone can carry wrongly."""

from __future__ import annotations

import json
import os
from typing import Any

from google.protobuf import json_format
from mtplx_proto.v1 import common_pb2, forge_pb2

from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.forge.news import Told
from mtplxd.forge.outcome import Outcome, Summary, outcome_of
from mtplxd.forge.recipe import QUALITY_FLOOR, BuildRecipe, TrainOptions
from mtplxd.forge.runs import Run
from mtplxd.forge.state import OVER


def read_request(request: Any) -> BuildRecipe:
    """The recipe that is asked for. Raises InvalidArgument naming the field."""
    training = request.training
    if training.prompts and not os.path.isabs(training.prompts):
        raise InvalidArgument(
            "not an absolute path", training.prompts, "name a file", field="training.prompts"
        )
    return BuildRecipe(
        source=request.source.strip(),
        name=request.name.strip(),
        body_bits=request.body_bits if request.HasField("body_bits") else None,
        group_size=request.group_size or 64,
        dtype=request.dtype or "auto",
        overrides={one.layers: one.bits for one in request.overrides},
        train=request.train,
        training=TrainOptions(
            training.method or "auto", training.prompts, training.tokens, training.steps, training.seed
        ),
        quick=request.quick,
        depths=tuple(request.depths),
        auto=request.auto,
        head_bits=request.head_bits if request.HasField("head_bits") else None,
        allow_degraded_head=request.allow_degraded_head,
        quality_floor=request.quality_floor if request.HasField("quality_floor") else QUALITY_FLOOR,
        on_battery=request.on_battery,
        accept_throttled=request.accept_throttled,
        no_fans=request.no_fans,
    )


def step_event(run: str, told: Told) -> forge_pb2.BuildEvent:
    return forge_pb2.BuildEvent(
        step=forge_pb2.BuildStep(
            run=run,
            step=told.step,
            stage=told.stage,
            progress=told.progress,
            eta_s=told.eta_s,
            message=told.message,
            done=told.done,
            total=told.total,
        )
    )


def outcome_event(found: Outcome) -> forge_pb2.BuildEvent:
    measured = found.measured
    outcome = forge_pb2.BuildOutcome(
        run=found.run,
        name=found.name,
        verdict=found.verdict,
        failure_reasons=found.reasons,
        pack=found.pack,
        message=found.message,
        notes=found.notes,
        details_json=json.dumps(found.details),
        took_s=found.took_s,
    )
    kept = {name: measured[name] for name in ("rows", "machine", "drift") if measured.get(name)}
    json_format.ParseDict(kept, outcome, ignore_unknown_fields=True)
    depth = measured.get("depth")
    if type(depth) is int:
        outcome.depth = depth
    outcome.auto = depth == "auto"
    return forge_pb2.BuildEvent(outcome=outcome)


def last_event(run: Run) -> forge_pb2.BuildEvent:
    """The end of a run that nobody has in hand. Raises FailedPrecondition where it came to none."""
    state = run.state()
    if state.status != OVER:
        said = state.error.get("message") or "it was interrupted"
        raise FailedPrecondition("the build is not in work", said, f"`mtplx forge resume {run.id}`")
    return outcome_event(outcome_of(run.id, run.recipe(), state))


def run_message(found: Summary, now: Told) -> forge_pb2.BuildRun:
    return forge_pb2.BuildRun(
        run=found.run,
        name=found.name,
        source=found.source,
        status=found.status,
        step=found.step,
        progress=now.progress,
        eta_s=now.eta_s,
        message=now.message,
        verdict=found.verdict,
        failure_reasons=found.reasons,
        error=found.error,
        created_unix_s=found.created,
        updated_unix_s=found.updated,
        resumable=found.resumable,
        bytes=found.bytes,
    )


def probe_reply(found: dict[str, Any]) -> forge_pb2.ProbeReply:
    return forge_pb2.ProbeReply(
        verdict=found.get("verdict", ""), reasons=found.get("reasons", ()), document_json=json.dumps(found)
    )


def publish_progress(told: Told) -> forge_pb2.PublishEvent:
    progress = common_pb2.Progress(
        stage=told.step, done=told.done, total=told.total, message=told.message, eta_s=told.eta_s
    )
    return forge_pb2.PublishEvent(progress=progress)


def published_event(found: dict[str, Any]) -> forge_pb2.PublishEvent:
    published = forge_pb2.Published(repo=found.get("repo", ""), document_json=json.dumps(found))
    return forge_pb2.PublishEvent(published=published)
