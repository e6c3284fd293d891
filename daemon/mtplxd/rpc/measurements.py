"""Measurements as protobuf messages and back. Conversion and checks of a client's words; nothing is measured here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mtplx_proto.v1 import common_pb2, tuning_pb2

from mtplxd.engine.events import Stats
from mtplxd.errors import InvalidArgument
from mtplxd.rpc import messages
from mtplxd.rpc.status import BlasFacts
from mtplxd.tune.facts import Place
from mtplxd.tune.measure import Measurement, Progress
from mtplxd.tune.plan import AUTO
from mtplxd.tune.prompts import Suite
from mtplxd.tune.summary import Row, Run


def suite_message(suite: Suite) -> tuning_pb2.SuiteReply:
    prompts = [
        tuning_pb2.SuitePrompt(index=prompt.index, text=prompt.text, seed=prompt.seed)
        for prompt in suite.prompts
    ]
    return tuning_pb2.SuiteReply(suite=suite.name, prompts=prompts)


def progress_message(step: Progress) -> common_pb2.Progress:
    """How far a measurement or a tuning is, in answers."""
    return common_pb2.Progress(
        stage="measure", done=step.done, total=step.total, unit="runs", eta_s=step.eta_s
    )


def progress_event(step: Progress) -> tuning_pb2.MeasureEvent:
    return tuning_pb2.MeasureEvent(progress=progress_message(step))


def load_event(done: int, total: int) -> tuning_pb2.MeasureEvent:
    return tuning_pb2.MeasureEvent(progress=messages.progress("load", done, total))


def measurement_message(
    found: Measurement, place: Place, blas: BlasFacts, **named: Any
) -> tuning_pb2.Measurement:
    """`named` are the fields that the request decides: model, sampler, suite, max_tokens."""
    return tuning_pb2.Measurement(
        rows=[_row_message(row, place) for row in found.rows],
        machine=machine_message(place, blas),
        order=found.order,
        runs=map(_run_message, found.runs),
        notes=found.notes,
        **named,
    )


def read_runs(runs: Sequence[Any]) -> list[Run]:
    """Runs that a client timed. Raises InvalidArgument naming the first that cannot have happened."""
    if not runs:
        raise InvalidArgument("no runs to summarise", None, "give at least one", field="runs")
    return [_read_run(place, run) for place, run in enumerate(runs)]


def _read_run(place: int, run: Any) -> Run:
    times = (run.first_s, run.last_s, run.ideal_round_ms, run.round_ms)
    if not all(math.isfinite(value) and value >= 0 for value in times):
        raise _impossible(place, "times are not finite and positive", times)
    if run.last_s < run.first_s:
        raise _impossible(place, "the last token came before the first", run.last_s)
    stats = run.stats
    if len(stats.accepted_by_position) != len(stats.judged_by_position):
        raise _impossible(
            place, "positions accepted and judged differ in number", len(stats.judged_by_position)
        )
    return Run(
        prompt=run.prompt,
        depth=_read_depth(place, run),
        tokens=run.tokens,
        first_s=run.first_s,
        last_s=run.last_s,
        stats=_read_stats(stats),
        ideal_round_ms=run.ideal_round_ms,
        round_ms=run.round_ms,
    )


def _read_depth(place: int, run: Any) -> int:
    if run.auto and run.depth:
        raise _impossible(place, "a depth that was chosen is none that was asked for", run.depth)
    return AUTO if run.auto else int(run.depth)


def _read_stats(stats: Any) -> Stats:
    return Stats(
        ttft_s=stats.ttft_s,
        tok_s=stats.tok_s,
        rounds=stats.rounds,
        drafted=stats.drafted,
        accepted=stats.accepted,
        accepted_by_position=tuple(stats.accepted_by_position),
        judged_by_position=tuple(stats.judged_by_position),
        depth=stats.depth,
        exactness=stats.exactness,
        degraded=tuple(stats.degraded),
        depth_rounds=tuple(stats.depth_rounds),
    )


def _impossible(place: int, what: str, value: object) -> InvalidArgument:
    return InvalidArgument(what, value, "send what was timed", field=f"runs[{place}]")


def _row_message(row: Row, place: Place) -> tuning_pb2.MeasureRow:
    return tuning_pb2.MeasureRow(
        depth=max(row.depth, 0),
        auto=row.depth == AUTO,
        tok_s=row.tok_s,
        ratio_vs_plain=row.ratio_vs_plain,
        tokens_per_round=row.tokens_per_round,
        acceptance_by_position=row.acceptance_by_position,
        round_ms=row.round_ms,
        ideal_round_ms=row.ideal_round_ms,
        efficiency=row.efficiency,
        rounds=row.rounds,
        runs=row.runs,
        fan_mode=place.fan_mode,
        thermal=place.thermal,
        power=place.machine.power,
    )


def _run_message(run: Run) -> tuning_pb2.Run:
    return tuning_pb2.Run(
        prompt=run.prompt,
        depth=max(run.depth, 0),
        auto=run.depth == AUTO,
        tokens=run.tokens,
        first_s=run.first_s,
        last_s=run.last_s,
        stats=messages.stats_message(run.stats),
        ideal_round_ms=run.ideal_round_ms,
        round_ms=run.measured_round_ms,
    )


def machine_message(place: Place, blas: BlasFacts) -> tuning_pb2.Machine:
    machine = place.machine
    return tuning_pb2.Machine(
        chip=machine.chip,
        memory=machine.memory,
        bandwidth_gb_s=place.bandwidth_gb_s,
        os=machine.os,
        python=machine.python,
        mlx=place.mlx,
        cores=machine.cores,
        blas=f"{blas.name}, {blas.threads} threads" if blas.threads else blas.name,
        power=machine.power,
        thermal=place.thermal,
    )
