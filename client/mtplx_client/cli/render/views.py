"""What people read of each reply: lines and tables, in the order that matters to them."""

from __future__ import annotations

from collections.abc import Sequence

from mtplx_client.cli.render import fans, kept
from mtplx_client.cli.render.table import Column, table
from mtplx_client.cli.render.words import duration, keep_alive, rate, ratio, shares, size
from mtplx_client.events import Paying, Reply, Sampler, TokenLogprob
from mtplx_client.measurements import Measurement, MeasureRow
from mtplx_client.replies import (
    Damaged,
    EngineState,
    InFlight,
    Listing,
    Memory,
    Pack,
    Power,
    PrefixCache,
    Resident,
    Status,
    Tuned,
)

_PACKS = (
    Column("NAME"),
    Column("SIZE", True),
    Column("FAMILY"),
    Column("TIER"),
    Column("HEAD"),
    Column("DEPTH", True),
)
_RESIDENTS = (
    Column("NAME"),
    Column("STATE"),
    Column("TIER"),
    Column("MEMORY", True),
    Column("DEPTH", True),
    Column("IN USE", True),
    Column("STAYS"),
)
_REQUESTS = (
    Column("ID"),
    Column("MODEL"),
    Column("STATE"),
    Column("AWAITS"),
    Column("TOKENS", True),
    Column("ROUNDS", True),
    Column("DEPTH", True),
    Column("TOK/S", True),
    Column("AGE", True),
)
_DRAWN = "DRAWN WITH"
_LOGPROBS = (
    Column("TOKEN"),
    Column("ID", True),
    Column("LOGPROB", True),
    Column(_DRAWN, True),
    Column("LIKELIEST"),
)
_ROWS = (
    Column("depth", True),
    Column("tok/s", True),
    Column("× plain", True),
    Column("tok/round", True),
    Column("acceptance"),
    Column("round ms", True),
    Column("ideal ms", True),
    Column("efficiency", True),
)


def listing(found: Listing, color: bool) -> str:
    """The packs on disk."""
    if not found.packs:
        number = "no whole packs" if found.damaged else "no packs yet"
        return f"{number}: fetch one with `mtplx pull smollm2-135m`"
    rows = [
        (p.name, size(p.bytes), p.family or "–", p.tier or "–", _head(p) or "none", str(p.depth_max))
        for p in found.packs
    ]
    return table(_PACKS, rows, color)


def _head(found: Pack) -> str:
    return f"{found.head_layout} (trained)" if found.head_trained else found.head_layout


def damaged(found: Damaged) -> str:
    """A folder that is no whole pack, and the way out."""
    return f"not a whole pack: {found.name}: {found.reason}, or delete it with `mtplx rm {found.name}`"


def pack(found: Pack) -> str:
    """One pack, a line a fact."""
    facts = [
        ("name", found.name),
        ("path", found.path),
        ("size", f"{size(found.bytes)} (body {size(found.bytes_body)}, head {size(found.bytes_head)})"),
        ("family", found.family),
        ("tier", found.tier),
        ("head", f"{_head(found)}, depth up to {found.depth_max}" if found.head_layout else "none"),
        ("context", f"{found.context} tokens" if found.context else ""),
        ("body hash", found.fingerprint_body),
        ("head hash", found.fingerprint_head),
    ]
    facts += [("because", reason) for reason in found.reasons]
    facts += [("note", note) for note in found.notes]
    return "\n".join(f"{name:<10}{value}" for name, value in facts if value)


def residents(found: Sequence[Resident], color: bool) -> str:
    """The models in memory."""
    if not found:
        return "no model in memory: bring one in with `mtplx load NAME`"
    rows = [
        (
            m.name,
            m.state,
            m.tier or "–",
            size(m.bytes_body + m.bytes_head),
            f"{m.depth} of {m.depth_max}",
            str(m.in_use),
            "pinned" if m.pinned else keep_alive(m.keep_alive_s),
        )
        for m in found
    ]
    lines = [table(_RESIDENTS, rows, color)]
    for model in found:
        lines += [f"{model.name}: {words}" for words in (_tuned(model.tuned), _paying(model.paying)) if words]
    return "\n".join(lines)


def _tuned(found: Tuned | None) -> str:
    """`tuned to depth 2, 1.42 × plain`, with all that makes it worth less."""
    if found is None:
        return ""
    depth = "auto" if found.auto else f"depth {found.depth}"
    parts = [f"tuned to {depth}, {found.ratio:.2f} × plain, measured {found.measured_at[:10]}"]
    parts += ["stale: other versions since, `mtplx tune` measures again"] if found.stale else []
    parts += [] if found.used else ["not used: it was loaded with a depth"]
    return ", ".join(parts)


def _paying(found: Paying | None) -> str:
    """Whether drafting pays, and what acceptance it takes."""
    if found is None:
        return ""
    pays = "pays here" if found.pays else "does not pay here"
    return (
        f"drafting {pays}: depth {found.depth} comes to {found.ratio:.2f} × plain, "
        f"acceptance {found.acceptance:.2f}, breaks even at {found.break_even:.2f}"
    )


def requests(found: Sequence[InFlight], color: bool) -> str:
    """The requests in work."""
    rows = [
        (
            r.id,
            r.model,
            f"{r.state.replace('_', ' ')}{', background' if r.priority == 'background' else ''}",
            r.waits_for or "–",
            _tokens(r),
            str(r.rounds) if r.rounds else "–",
            str(r.depth) if r.rounds else "–",
            f"{r.tok_s:.1f}" if r.tok_s else "–",
            duration(r.age_s),
        )
        for r in found
    ]
    return table(_REQUESTS, rows, color)


def _tokens(request: InFlight) -> str:
    """The prompt's and the text's; while the prompt is read, how much of it is."""
    if request.state == "prefill":
        return f"{request.prefilled}/{request.prompt_tokens}"
    return f"{request.prompt_tokens}+{request.completion_tokens}"


def engine(found: EngineState) -> str:
    """What the engine has in hand, in one line."""
    if not found.alive:
        return "has died: restart the daemon"
    parts = [f"rows {found.rows}", f"prefilling {found.prefilling}"]
    if found.set_aside:
        parts.append(f"set aside {found.set_aside}")
    if found.contexts:
        parts.append(f"contexts {size(found.contexts)}")
    if found.busy_with:
        parts.append(found.busy_with)
    beat = f"went on {duration(found.heartbeat_age_s)} ago"
    parts.append(f"STALLED, last {beat}: restart the daemon" if found.stalled else beat)
    return ", ".join(parts)


def _prefixes(found: PrefixCache) -> str:
    """What is kept of prompts, empty where nothing is."""
    if not (found.hits or found.misses or found.bytes):
        return ""
    return f"{size(found.bytes)} of {size(found.limit)}, {found.hits} hits, {found.misses} misses"


def _memory(found: Memory) -> str:
    """Sizes by the system's count, then what MLX may keep of it."""
    words = f"{size(found.used)} used, {size(found.plan)} planned, {size(found.total)} in the machine"
    device = found.device
    cache = f", MLX keeps {size(device.cache)} of {size(device.cache_limit)}" if device.cache_limit else ""
    wired = f", wires up to {size(device.wired_limit)}" if device.wired_limit else ""
    refused = f", wired limit {device.wired}" if device.wired.startswith("refused") else ""
    return f"{words}{cache}{wired}{refused}"


def _strain(found: Memory) -> str:
    """Empty while there is memory enough and nothing had to go."""
    if found.level in ("", "normal") and not found.given_back:
        return ""
    parts = [found.level, *([found.reading] if found.reading and found.level != "normal" else [])]
    parts += [f"gave back {found.given_back}"] if found.given_back else []
    parts += ["no new requests until it is less"] if found.level == "critical" else []
    return ", ".join(parts)


def _power(found: Power) -> str:
    """Empty while nothing is to be said: nothing is held, and it could be."""
    if found.held:
        return f"kept awake by {found.by}"
    return found.trouble


def status(found: Status, color: bool) -> str:
    """The daemon's state."""
    memory, blas = found.memory, found.blas
    speed = f", {blas.gflops:.0f} GFLOP/s measured" if blas.gflops else ", not measured yet"
    facts = [
        ("socket", found.socket),
        ("home", found.home),
        ("memory", _memory(memory)),
        ("pressure", _strain(memory)),
        ("power", _power(found.power)),
        ("blas", f"{blas.name}, {blas.threads} threads{speed}" if blas.name else ""),
        ("queue", f"{found.queue.running} running, {found.queue.waiting} waiting"),
        ("engine", engine(found.engine)),
        ("prefixes", _prefixes(found.engine.prefixes)),
        ("store", kept.words(found.store)),
        ("thermal", fans.words(found.thermal)),
        ("degraded", ", ".join(found.degraded)),
    ]
    lines = [f"mtplxd {found.version}, {found.state}, pid {found.pid}, up {duration(found.uptime_s)}"]
    lines += [f"{name:<10}{value}" for name, value in facts if value]
    lines += ["", residents(found.models, color)]
    lines += [
        f"{model.name} is degraded: {', '.join(model.degraded)}" for model in found.models if model.degraded
    ]
    lines += [f"{model.name} serves in turn: {model.apart}" for model in found.models if model.apart]
    if found.in_flight:
        lines += ["", requests(found.in_flight, color)]
    return "\n".join(lines)


def stats(reply: Reply, plain: str) -> str:
    """The line that --stats adds; `plain` compares with plain decoding, empty when that is unknown."""
    found, usage = reply.stats, reply.usage
    parts = [
        rate(found.tok_s),
        f"first token {duration(found.ttft_s)}",
        f"{usage.prompt_tokens}+{usage.completion_tokens} tokens",
        f"depth {found.depth}",
    ]
    if usage.cached_tokens or found.cache_miss:
        reason = f" ({found.cache_miss.replace('_', ' ')})" if found.cache_miss else ""
        took = f" in {duration(found.restore_s)}" if found.restore_s else ""
        parts.insert(3, f"{usage.cached_tokens} cached{took}{reason}")
    if reply.sampler.acceptance:
        parts.append(f"rule {reply.sampler.acceptance}")
    if found.acceptance_by_position:
        parts.append(f"acceptance {shares(found.acceptance_by_position)}")
    if plain:
        parts.append(plain)
    if found.paying is not None:
        words = "drafting pays" if found.paying.pays else "drafting does not pay"
        parts.append(f"{words}, breaks even at {found.paying.break_even:.2f}")
    if found.exactness not in ("", "exact"):
        parts.append(found.exactness)
    if found.degraded:
        parts.append(f"degraded: {', '.join(found.degraded)}")
    return " · ".join(parts)


def logprobs(found: Sequence[TokenLogprob]) -> str:
    """A line a token: its text, how likely it was, and what else was likely."""
    with_law = any(entry.law is not None for entry in found)
    rows = []
    for entry in found:
        drawn = [f"{entry.law:.3f}"] if entry.law is not None else []
        others = " ".join(f"{_quoted(top.text)} {top.logprob:.3f}" for top in entry.top)
        rows.append((_quoted(entry.text), str(entry.token), f"{entry.logprob:.3f}", *drawn, others))
    columns = [column for column in _LOGPROBS if with_law or column.title != _DRAWN]
    return table(columns, rows, False)


def _quoted(text: bytes) -> str:
    """A token's bytes on one line: as characters where they are whole ones."""
    try:
        return repr(text.decode())
    except UnicodeDecodeError:
        return repr(text)


def measurement(found: Measurement, path: str, color: bool) -> str:
    """The table of a measurement and what it was measured on."""
    machine, sampler = found.machine, found.sampler
    prompts = len({run.prompt for run in found.runs})
    lines = [
        table(_ROWS, [_row(row) for row in found.rows], color),
        "",
        f"{found.model}, {sampler_words(sampler)}, suite {found.suite}, {prompts} prompts, "
        f"{found.max_tokens} tokens each, {path}",
        f"{machine.chip}, {machine.cores} cores, {size(machine.memory)}, {machine.os}",
        f"BLAS {machine.blas or '–'}, power {machine.power or '–'}, thermal {machine.thermal or '–'}, "
        f"fans {next((row.fan_mode for row in found.rows if row.fan_mode), '–')}",
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _row(row: MeasureRow) -> tuple[str, ...]:
    return (
        str(row.asked),
        f"{row.tok_s:.1f}",
        ratio(row.ratio_vs_plain),
        f"{row.tokens_per_round:.2f}",
        shares(row.acceptance_by_position),
        ratio(row.round_ms),
        ratio(row.ideal_round_ms),
        ratio(row.efficiency),
    )


def sampler_words(found: Sampler) -> str:
    """The sampler of a measurement, what is off left out."""
    if found.acceptance == "greedy":
        return "greedy"
    parts = [f"T {found.temperature:g}", f"top-p {found.top_p:g}"]
    parts += [f"top-k {found.top_k}"] if found.top_k else []
    parts += [f"min-p {found.min_p:g}"] if found.min_p else []
    parts += [f"rule {found.acceptance}"] if found.acceptance else []
    return " ".join(parts)
