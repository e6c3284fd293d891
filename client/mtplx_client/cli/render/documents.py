"""The JSON documents, with the field names that programs rely on; what is unknown is null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mtplx_client.cli.render import fans, kept
from mtplx_client.events import Collector, Event, Final, Logprobs, Reply, Text, TokenLogprob, TopLogprob
from mtplx_client.measurements import Measurement, MeasureRow
from mtplx_client.replies import InFlight, Listing, Pack, Resident, Status, Tuned


def listing(found: Listing) -> dict[str, Any]:
    """The packs on disk."""
    return {
        "packs": [pack(one) for one in found.packs],
        "damaged": [asdict(one) for one in found.damaged],
    }


def pack(found: Pack) -> dict[str, Any]:
    """A pack on disk."""
    return {
        "name": found.name,
        "path": found.path or None,
        "bytes": found.bytes,
        "family": found.family or None,
        "tier": found.tier or None,
        "model_type": found.model_type or None,
        "bytes_body": found.bytes_body,
        "bytes_head": found.bytes_head,
        "head_layout": found.head_layout or None,
        "head_trained": found.head_trained,
        "depth_max": found.depth_max,
        "context": found.context or None,
        "fingerprint": {"body": found.fingerprint_body or None, "head": found.fingerprint_head or None},
        "reasons": list(found.reasons),
        "notes": list(found.notes),
    }


def resident(model: Resident) -> dict[str, Any]:
    """A model in memory."""
    return {
        "name": model.name,
        "path": model.path or None,
        "bytes": model.bytes_body + model.bytes_head,
        "family": model.family or None,
        "tier": model.tier or None,
        "state": model.state,
        "bytes_body": model.bytes_body,
        "bytes_head": model.bytes_head,
        "depth": model.depth,
        "depth_max": model.depth_max,
        "keep_alive_s": model.keep_alive_s,
        "keep_alive_from": model.keep_alive_from or None,
        "pinned": model.pinned,
        "in_use": model.in_use,
        "idle_s": model.idle_s,
        "degraded": list(model.degraded),
        "store": model.store or None,
        "tuned": _tuned(model.tuned),
        "paying": None if model.paying is None else asdict(model.paying),
        "scheduling": {"mode": "in_turn" if model.apart else "together", "reason": model.apart or None},
    }


def _tuned(found: Tuned | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "depth": found.chosen,
        "ratio": found.ratio,
        "ci95": list(found.ci95),
        "measured_at": found.measured_at,
        "stale": found.stale,
        "used": found.used,
    }


def status(found: Status) -> dict[str, Any]:
    """The daemon's state."""
    return {
        "version": found.version,
        "pid": found.pid,
        "uptime_s": found.uptime_s,
        "socket": found.socket,
        "home": found.home,
        "state": found.state,
        "blas": {
            "name": found.blas.name or None,
            "threads": found.blas.threads or None,
            "gflops": found.blas.gflops or None,
            "path": found.blas.path or None,
        },
        "models": [resident(model) for model in found.models],
        "queue": asdict(found.queue),
        "in_flight": [in_flight(request) for request in found.in_flight],
        "engine": {**asdict(found.engine), "busy_with": found.engine.busy_with or None},
        "store": kept.state(found.store),
        "thermal": fans.state(found.thermal),
        "memory": asdict(found.memory),
        "power": asdict(found.power),
        "counters": asdict(found.counters),
        "degraded": list(found.degraded),
        "settings": {item.key: {"value": item.value, "source": item.source} for item in found.settings},
        "python": found.python or None,
    }


def in_flight(request: InFlight) -> dict[str, Any]:
    """A request in work."""
    return {**asdict(request), "waits_for": request.waits_for or None}


def event(found: Event) -> dict[str, Any]:
    """An event of an answer, except the last."""
    if isinstance(found, Logprobs):
        return {"event": "logprobs", "tokens": [token_logprob(entry) for entry in found.tokens]}
    fields = asdict(found)
    del fields["choice"]
    return {"event": "text" if isinstance(found, Text) else "progress", **fields}


def choice_event(found: Event) -> dict[str, Any]:
    """An event of one of several answers; the last one of an answer says how it ended."""
    if isinstance(found, Final):
        reason, origin = found.finish_reason, found.stop_origin
        return {"event": "end", "choice": found.choice, "finish_reason": reason, "stop_origin": origin}
    return {**event(found), "choice": found.choice}


def choices(answer: Reply) -> dict[str, Any]:
    """Several whole answers: the first one's fields, and all of them as a list."""
    numbered = [{"choice": place, **reply(one)} for place, one in enumerate(answer.choices)]
    return {**reply(answer), "choices": numbered}


def token_logprob(entry: TokenLogprob) -> dict[str, Any]:
    """One token; `law` only where it was asked for."""
    law = {} if entry.law is None else {"law": entry.law}
    return {**_token(entry), "top": [_token(top) for top in entry.top], **law}


def _logprobs(entries: Sequence[TokenLogprob] | None) -> list[dict[str, Any]] | None:
    return None if entries is None else [token_logprob(entry) for entry in entries]


def _token(entry: TokenLogprob | TopLogprob) -> dict[str, Any]:
    """`text` shows a part of a character as a replacement character; `bytes` are the token's own."""
    text = entry.text.decode(errors="replace")
    return {"token": entry.token, "logprob": entry.logprob, "text": text, "bytes": list(entry.text)}


def reply(answer: Reply) -> dict[str, Any]:
    """A whole answer."""
    return {
        "text": answer.text,
        "tokens": answer.tokens,
        "finish_reason": answer.finish_reason,
        "stop_origin": answer.stop_origin,
        "sampler": asdict(answer.sampler),
        "usage": asdict(answer.usage),
        "stats": asdict(answer.stats),
        "model": answer.model,
        "message": answer.message or None,
        "logprobs": _logprobs(answer.logprobs),
        "session": None if answer.session is None else asdict(answer.session),
    }


def interrupted(answer: Collector) -> dict[str, Any]:
    """An answer that its reader cut off, as far as it came."""
    final = Final(finish_reason="cancelled", stop_origin="client")
    return {
        "text": answer.text,
        "tokens": answer.tokens,
        "finish_reason": final.finish_reason,
        "stop_origin": final.stop_origin,
        "sampler": None,
        "usage": None,
        "stats": None,
        "model": None,
        "message": None,
        "logprobs": _logprobs(answer.logprobs),
        "session": None,
    }


def interrupted_choices(answers: Sequence[Collector]) -> dict[str, Any]:
    """Several answers that their reader cut off: one that had ended already stays as it was."""
    cut = [reply(one.reply()) if one.final else interrupted(one) for one in answers]
    numbered = [{"choice": place, **one} for place, one in enumerate(cut)]
    return {**interrupted(answers[0]), "choices": numbered}


def measurement(found: Measurement, path: str) -> dict[str, Any]:
    """Rows a depth; `path` is socket or inprocess."""
    return {
        "rows": [measure_row(row) for row in found.rows],
        "machine": asdict(found.machine),
        "blas": found.machine.blas or None,
        "model": found.model,
        "sampler": asdict(found.sampler),
        "order": list(found.order),
        "suite": found.suite,
        "max_tokens": found.max_tokens,
        "path": path,
        "notes": list(found.notes),
        "runs": [
            {
                "prompt": run.prompt,
                "depth": run.asked,
                "tokens": run.tokens,
                "first_s": run.first_s,
                "last_s": run.last_s,
            }
            for run in found.runs
        ],
    }


def measure_row(row: MeasureRow) -> dict[str, Any]:
    """One depth; null where the path cannot measure it."""
    return {
        "depth": row.asked,
        "tok_s": row.tok_s,
        "ratio_vs_plain": row.ratio_vs_plain or None,
        "tokens_per_round": row.tokens_per_round,
        "acceptance_by_position": list(row.acceptance_by_position),
        "round_ms": row.round_ms or None,
        "ideal_round_ms": row.ideal_round_ms or None,
        "efficiency": row.efficiency or None,
        "rounds": row.rounds,
        "runs": row.runs,
        "fan_mode": row.fan_mode or None,
        "thermal": row.thermal or None,
        "power": row.power or None,
    }
