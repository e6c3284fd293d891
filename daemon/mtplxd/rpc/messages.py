"""Plain values of other rooms as protobuf messages. Conversion only: nothing is decided or looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from mtplx_proto.v1 import common_pb2, generation_pb2, models_pb2, system_pb2

from mtplxd.engine.events import Finished, Logprobs, Progress, Stats, Text, TokenLogprob
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.snapshot import EngineSnapshot
from mtplxd.packs.bodies import body_notes
from mtplxd.packs.detector import HeadReport
from mtplxd.packs.pack import Pack
from mtplxd.residency.collaborators import Verdict
from mtplxd.residency.entry import ResidentView
from mtplxd.rpc.calls import EarlyCall
from mtplxd.rpc.conversing import Kept
from mtplxd.store.prefixes import PrefixCounts
from mtplxd.tune.paying import judge_paying
from mtplxd.tune.tuned import TunedDepth

_UNITS = {"queue": "requests", "prefill": "tokens", "load": "tensors", "fetch": "bytes", "convert": "tensors"}


def progress(stage: str, done: int, total: int, message: str = "") -> common_pb2.Progress:
    return common_pb2.Progress(
        stage=stage, done=done, total=total, unit=_UNITS.get(stage, ""), message=message
    )


def progress_event(event: Progress) -> generation_pb2.GenerateEvent:
    return generation_pb2.GenerateEvent(progress=progress(event.stage, event.done, event.total))


def text_event(event: Text) -> generation_pb2.GenerateEvent:
    delta = generation_pb2.TextDelta(text=event.text, tokens=event.tokens)
    return generation_pb2.GenerateEvent(text=delta)


def logprobs_event(
    event: Logprobs, bytes_of: Callable[[int], bytes], law: bool
) -> generation_pb2.GenerateEvent:
    """`bytes_of` gives a token's own bytes; `law` tells whether the client asked what tokens were drawn with."""
    entries = [_token_logprob(entry, bytes_of, law) for entry in event.tokens]
    return generation_pb2.GenerateEvent(logprobs=generation_pb2.Logprobs(tokens=entries))


def _token_logprob(
    entry: TokenLogprob, bytes_of: Callable[[int], bytes], law: bool
) -> generation_pb2.TokenLogprob:
    top = [
        generation_pb2.TopLogprob(token=token, logprob=value, text=bytes_of(token))
        for token, value in entry.top
    ]
    return generation_pb2.TokenLogprob(
        token=entry.token,
        logprob=entry.logprob,
        text=bytes_of(entry.token),
        top=top,
        law=entry.law if law else None,
    )


def waiting_event(message: str) -> generation_pb2.GenerateEvent:
    """What a request waits for before it can be queued, in words."""
    return generation_pb2.GenerateEvent(progress=progress("queue", 0, 0, message))


def final_event(
    finished: Finished,
    sampler: SamplerSettings,
    model: str,
    load_s: float,
    message: str,
    kept: Kept | None = None,
) -> generation_pb2.GenerateEvent:
    """The last event of a generation; `message` is used where the engine has none."""
    final = generation_pb2.Final(
        finish_reason=finished.finish_reason,
        stop_origin=finished.stop_origin,
        usage=common_pb2.Usage(
            prompt_tokens=finished.prompt_tokens,
            cached_tokens=finished.cached_tokens,
            completion_tokens=finished.completion_tokens,
        ),
        sampler=sampler_message(sampler),
        stats=stats_message(finished.stats, load_s),
        model=model,
        message=finished.message or message,
        session=None if kept is None else generation_pb2.Kept(**asdict(kept)),
    )
    return generation_pb2.GenerateEvent(final=final)


def sampler_message(sampler: SamplerSettings) -> common_pb2.Sampler:
    return common_pb2.Sampler(
        temperature=sampler.temperature,
        top_p=sampler.top_p,
        top_k=sampler.top_k,
        min_p=sampler.min_p,
        seed=sampler.seed,
        acceptance=sampler.rule,
        presence_penalty=sampler.presence_penalty,
        frequency_penalty=sampler.frequency_penalty,
        repetition_penalty=sampler.repetition_penalty,
        logit_bias=[common_pb2.LogitBias(token=token, bias=bias) for token, bias in sampler.logit_bias],
        reproducible=sampler.reproducible,
        draft_temperature=sampler.draft.temperature,
        draft_top_k=sampler.draft.top_k,
    )


def stats_message(stats: Stats, load_s: float = 0.0) -> common_pb2.Stats:
    return common_pb2.Stats(
        ttft_s=stats.ttft_s,
        tok_s=stats.tok_s,
        rounds=stats.rounds,
        drafted=stats.drafted,
        accepted=stats.accepted,
        acceptance_by_position=stats.acceptance_by_position,
        depth=stats.depth,
        exactness=stats.exactness,
        queue_s=stats.queue_s,
        load_s=load_s,
        prefill_s=stats.prefill_s,
        decode_s=stats.decode_s,
        degraded=stats.degraded,
        judged_by_position=stats.judged_by_position,
        accepted_by_position=stats.accepted_by_position,
        depth_rounds=stats.depth_rounds,
        cache_miss=stats.cache_miss,
        restore_s=stats.restore_s,
    )


def pack_message(pack: Pack, head: HeadReport, verdict: Verdict) -> models_pb2.Pack:
    """A pack as its headers and manifest describe it."""
    manifest = pack.manifest
    return models_pb2.Pack(
        name=pack.name,
        path=str(pack.path),
        bytes=pack.bytes_total,
        family=pack.family,
        tier=verdict.tier,
        model_type=pack.model_type,
        bytes_body=pack.bytes_body,
        bytes_head=pack.bytes_head,
        head_layout=head.layout,
        depth_max=head.depth_max,
        context=pack.context,
        fingerprint_body=(manifest.body_fingerprint if manifest else None) or "",
        fingerprint_head=(manifest.head_fingerprint if manifest else None) or "",
        reasons=verdict.reasons,
        notes=(*head.notes, *body_notes(pack.config)),
        head_trained=head.trained,
    )


def resident_message(view: ResidentView) -> models_pb2.Resident:
    reasons = [*view.degraded, view.error] if view.error else view.degraded
    return models_pb2.Resident(
        name=view.name,
        state=view.state,
        tier=view.tier,
        bytes_body=view.bytes_body,
        bytes_head=view.bytes_head,
        depth=view.depth,
        keep_alive_s=view.keep_alive_s,
        in_use=view.in_use,
        path=view.path,
        depth_max=view.depth_max,
        idle_s=view.idle_s,
        degraded=reasons,
        family=view.family,
        apart=view.apart,
        store=view.store,
        tuned=_tuned_message(view.tuned, used=view.tuned_used) if view.tuned else None,
        paying=paying_message(view.traffic),
        keep_alive_from=view.keep_alive_from,
        pinned=view.pinned,
    )


def _tuned_message(tuned: TunedDepth, *, used: bool) -> models_pb2.Tuned:
    return models_pb2.Tuned(
        depth=0 if tuned.auto else tuned.depth,
        auto=tuned.auto,
        ratio=tuned.ratio,
        ci95=[tuned.low, tuned.high],
        measured_at=time_message(tuned.measured_at),
        stale=tuned.stale,
        used=used,
    )


def time_message(seconds: float) -> str:
    """A moment (seconds since 1970) as ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def paying_message(traffic: Mapping[str, Any]) -> common_pb2.Paying | None:
    """Whether drafting pays by a depth controller's state; None while it knows too little."""
    found = judge_paying(traffic)
    return None if found is None else common_pb2.Paying(pays=found.pays, **asdict(found))


def in_flight_messages(
    early: Iterable[EarlyCall], engine: EngineSnapshot, now: float
) -> list[system_pb2.InFlight]:
    """Every generation: those on their way to the engine, then those in it. `now` is monotonic seconds."""
    messages = [
        system_pb2.InFlight(
            id=call.id,
            client=call.client,
            model=call.model,
            state=call.state,
            waits_for=(engine.busy_with if call.state == "load" else "") or call.waits_for,
            age_s=now - call.since,
            priority=call.priority,
        )
        for call in early
    ]
    messages += [
        system_pb2.InFlight(
            id=request.id,
            client=request.client,
            model=request.model,
            state=request.state,
            waits_for=request.waits_for,
            prompt_tokens=request.prompt_tokens,
            completion_tokens=request.completion_tokens,
            age_s=request.age_s,
            prefilled=request.prefilled,
            cached_tokens=request.cached_tokens,
            rounds=request.rounds,
            depth=request.depth,
            tok_s=request.tok_s,
            priority=request.priority,
        )
        for request in engine.in_flight
    ]
    return messages


def engine_message(engine: EngineSnapshot, stalled: bool, prefixes: PrefixCounts) -> system_pb2.EngineState:
    """What the engine has in hand and is kept of prompts; whether it stalls is the watchdog's to say."""
    return system_pb2.EngineState(
        rows=engine.rows,
        prefilling=engine.prefilling,
        set_aside=engine.set_aside,
        heartbeat_age_s=engine.heartbeat_age_s,
        stalled=stalled,
        alive=engine.alive,
        busy_with=engine.busy_with,
        contexts=engine.contexts,
        prefixes=system_pb2.PrefixCache(
            bytes=prefixes.nbytes,
            limit=prefixes.limit,
            entries=prefixes.blocks,
            hits=prefixes.hits,
            misses=prefixes.misses,
        ),
    )


def counters_message(engine: EngineSnapshot) -> system_pb2.Counters:
    counters = engine.counters
    return system_pb2.Counters(
        requests=counters.requests,
        prompt_tokens=counters.prompt_tokens,
        completion_tokens=counters.completion_tokens,
        rounds=counters.rounds,
        drafted=counters.drafted,
        accepted=counters.accepted,
        since_unix_s=counters.since_unix_s,
    )
