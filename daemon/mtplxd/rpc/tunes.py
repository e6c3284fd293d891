"""A tuning as a client asks for it and hears of it: words checked, the model's part settled, the result kept and told.

Measuring and deciding are `tune`'s, where records are is residency's.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf import json_format
from mtplx_proto.v1 import tuning_pb2

from mtplxd.engine.request import SamplerSettings
from mtplxd.errors import InvalidArgument
from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.packs.pack import Pack
from mtplxd.residency.catalog import SamplerDefaults, sampler_defaults
from mtplxd.residency.depth_memory import DepthMemory
from mtplxd.residency.entry import Lease
from mtplxd.rpc import messages
from mtplxd.rpc.measurements import machine_message, progress_message
from mtplxd.rpc.status import BlasFacts
from mtplxd.rpc.validate_sampler import AskedSampler, read_sampler, settle_sampler, without_seed
from mtplxd.tune.decision import Decision, TuneRow, decide
from mtplxd.tune.drift import Drift
from mtplxd.tune.effort import FULL, QUICK, longest_answer, settle_candidates, settle_prompts
from mtplxd.tune.facts import Place
from mtplxd.tune.keys import TunedKey
from mtplxd.tune.measure import Progress
from mtplxd.tune.outcome import Kept, say_outcome
from mtplxd.tune.plan import AUTO
from mtplxd.tune.prompts import DEFAULT_SEED, Suite, fill_prompts, load_suite
from mtplxd.tune.rows import curve_of
from mtplxd.tune.tuned import TunedDepth
from mtplxd.tune.tuning import Asked, Tuning, settle_context

TEMPERATURE, TOP_P = 0.6, 0.95
"""Where neither the request nor the pack says anything: the sampler that `bench` uses, too."""


@dataclass(frozen=True)
class AskedTune:
    """A tuning as asked, checked as far as it can be without its model."""

    request: Any
    depths: tuple[int, ...]
    suite: Suite
    sampler: AskedSampler
    seed: int

    @property
    def settings(self) -> str:
        """What was asked for, short: two tunings of one model with the same measure the same."""
        asked = self.request
        lengths = len(self.suite.prompts), asked.max_tokens, asked.context
        sampler = json_format.MessageToDict(asked.sampler)
        told = [[*self.depths], asked.auto, asked.quick, self.suite.name, lengths, sampler]
        told += ["no fans"] if asked.no_fans else []  # rows are told with who had the fans
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ReadyTune:
    """What the engine is to do, and where its result goes."""

    pack: Pack
    number: int
    asked: Asked
    prompts: Sequence[list[int]]
    sampler: SamplerSettings
    key: TunedKey
    notes: tuple[str, ...]


def read_tune(request: Any) -> AskedTune:
    """A TuneRequest, checked; reads the suite. Raises InvalidArgument naming the field."""
    seed = request.sampler.seed if request.sampler.HasField("seed") else DEFAULT_SEED
    prompts = settle_prompts(request.prompts)
    longest_answer(request.max_tokens, FULL)
    return AskedTune(
        request=request,
        depths=tuple(request.depths),
        suite=load_suite(request.suite, prompts, seed),
        sampler=without_seed(read_sampler(request.sampler)),
        seed=seed,
    )


def prepare(asked: AskedTune, lease: Lease, depths: DepthMemory) -> ReadyTune:
    """Settles what depends on the model; may read all its weights once. Raises InvalidArgument, FailedPrecondition."""
    model, request = lease.model, asked.request
    most = model.depth_max if model.head is not None else 0
    candidates, notes = settle_candidates(
        asked.depths, most, auto=request.auto, quick=request.quick, name=model.name
    )
    if request.context >= model.context:
        fix = f"give less than the {model.context} tokens of the model's context"
        raise InvalidArgument("prompts are longer than the context", request.context, fix, field="context")
    defaults = sampler_defaults(model.pack)
    sampler = settle_sampler(_filled(asked.sampler, defaults), defaults, model.target.vocab_size)
    effort = QUICK if request.quick else FULL
    return ReadyTune(
        pack=model.pack,
        number=model.number,
        asked=Asked(asked.suite.prompts, candidates, request.max_tokens, effort),
        prompts=fill_prompts(asked.suite, model.tokenizer, request.context),
        sampler=replace(sampler, seed=asked.seed),
        key=depths.key_of(model, _asked_words(request.sampler)),
        notes=notes,
    )


def longest(ready: ReadyTune) -> int:
    """Tokens of the longest prompt with an answer to it."""
    return max(map(len, ready.prompts)) + longest_answer(ready.asked.tokens, ready.asked.effort)


def find_cached(asked: AskedTune, ready: ReadyTune, depths: DepthMemory) -> Any | None:
    """The result of an earlier tuning that the same was asked of under the same versions, None without one."""
    found = None if asked.request.retune else depths.find_tuned(ready.key)
    if found is None or found.stale or found.settings != asked.settings or not found.result:
        return None
    try:
        reply = json_format.ParseDict(dict(found.result), tuning_pb2.TuneReply(), ignore_unknown_fields=True)
    except json_format.ParseError:  # somebody edited the file: it is measured again
        return None
    reply.cached = True
    return reply


def conclude(
    found: Tuning, asked: AskedTune, ready: ReadyTune, depths: DepthMemory, place: Place, blas: BlasFacts
) -> Any:
    """Decides, keeps or clears, and tells it. Writes a file."""
    decision = decide(found.rows, found.drift, accept_throttled=asked.request.accept_throttled)
    reply = _reply(found, asked, ready, decision, place, blas)
    kept = _keep(found, decision, reply, asked, ready, depths)
    reply.decision.saved, reply.decision.cleared = kept.saved, kept.cleared
    reply.decision.message = say_outcome(decision, kept)
    return reply


def _keep(
    found: Tuning, decision: Decision, reply: Any, asked: AskedTune, ready: ReadyTune, depths: DepthMemory
) -> Kept:
    """A winner is kept with the answer as it is given again; without one an older winner goes."""
    if asked.request.no_save:
        return Kept(asked=False)
    if decision.depth is not None:
        reply.decision.saved = True
        reply.decision.message = say_outcome(decision, Kept(saved=True))
        tuned = _tuned(found, decision.depth, asked, reply)
        return Kept(saved=depths.keep_tuned(ready.number, ready.key, tuned))
    if decision.verdict in ("no_depth_beats_plain", "acceptance_collapsed"):
        return Kept(cleared=depths.clear_tuned(ready.number, ready.key))
    return Kept()


def progress_event(step: Progress) -> Any:
    return tuning_pb2.TuneEvent(progress=progress_message(step))


def load_event(done: int, total: int) -> Any:
    return tuning_pb2.TuneEvent(progress=messages.progress("load", done, total))


def _filled(asked: AskedSampler, defaults: SamplerDefaults) -> AskedSampler:
    said = (asked.temperature, defaults.temperature, asked.top_p, defaults.top_p)
    if any(value is not None for value in said):
        return asked
    return replace(asked, temperature=TEMPERATURE, top_p=TOP_P)


def _asked_words(sampler: Any) -> dict[str, Any]:
    """What of the sampler was asked for, as JSON values; a seed chooses prompts' randomness and no law."""
    told = json_format.MessageToDict(sampler, preserving_proto_field_name=True)
    told.pop("seed", None)
    return told


def _tuned(found: Tuning, depth: int, asked: AskedTune, reply: Any) -> TunedDepth:
    row = next(row for row in found.rows if row.depth == depth)
    assert row.interval is not None
    return TunedDepth(
        depth=depth,
        ratio=row.interval.ratio,
        low=row.interval.low,
        high=row.interval.high,
        acceptance=row.acceptance_by_position[0],
        measured_at=time.time(),
        settings=asked.settings,
        curve=curve_of(found.rows),
        result=json_format.MessageToDict(reply, preserving_proto_field_name=True),
    )


def _reply(
    found: Tuning, asked: AskedTune, ready: ReadyTune, decision: Decision, place: Place, blas: BlasFacts
) -> Any:
    context = settle_context([len(prompt) for prompt in ready.prompts])
    won = decision.depth
    return tuning_pb2.TuneReply(
        model=ready.pack.name,
        machine=machine_message(place, blas),
        key=ready.key.name,
        rows=[_row_message(row, asked.suite.name, context, place) for row in found.rows],
        drift=_drift_message(found.drift),
        decision=tuning_pb2.TuneDecision(
            depth=None if won in (None, AUTO) else won,
            auto=won == AUTO,
            verdict=decision.verdict,
            message=decision.message,
        ),
        sampler=messages.sampler_message(ready.sampler),
        suite=asked.suite.name,
        max_tokens=found.tokens,
        order=found.order,
        notes=(*ready.notes, *found.notes, *_accepted(found.drift, asked)),
        measured_at=messages.time_message(time.time()),
        fingerprint_body=body_fingerprint(ready.pack),
        fingerprint_head=own_head_fingerprint(ready.pack),
    )


def _accepted(drift: Drift, asked: AskedTune) -> list[str]:
    if not (drift.throttled and asked.request.accept_throttled):
        return []
    return [f"plain decoding changed by {drift.change:+.0%} during the run: accepted, as asked"]


def _row_message(row: TuneRow, suite: str, context: int, place: Place) -> Any:
    interval = row.interval
    return tuning_pb2.TuneRow(
        depth=max(row.depth, 0),
        auto=row.depth == AUTO,
        tok_s=row.tok_s,
        ratio=interval.ratio if interval else 0.0,
        ci95=[interval.low, interval.high] if interval else [],
        tokens_per_round=row.tokens_per_round,
        acceptance_by_position=row.acceptance_by_position,
        round_ms=row.round_ms,
        rounds=row.rounds,
        prompts=len(row.speeds),
        suite=suite,
        context=context,
        fan_mode=place.fan_mode,
        thermal=place.thermal,
        power=place.machine.power,
    )


def _drift_message(drift: Drift) -> Any:
    start, middle, end = (point.tok_s for point in drift.points)
    return tuning_pb2.Drift(
        start=start,
        middle=middle,
        end=end,
        change=drift.change,
        held_s=drift.held_s,
        took_s=drift.points[-1].at_s,
        throttled=drift.throttled,
    )
