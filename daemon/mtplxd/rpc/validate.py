"""What a client's words mean, checked before any work. Plain values come out; no model is known here."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any

from mtplxd.engine.request import SamplerSettings
from mtplxd.errors import InvalidArgument
from mtplxd.residency.catalog import SamplerDefaults

TEMPERATURE_LOW, TEMPERATURE_HIGH = 1e-3, 100.0
"""Range of a temperature that is not 0; below it, quotients of logits leave float32."""
SEED_BITS = 32
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Asked:
    """A generation as asked. None where the client said nothing; `depth` -1 is `auto`.

    Exactly one of `messages`, `text` and `tokens` is set.
    """

    model: str
    messages: tuple[dict[str, str], ...] | None
    text: str | None
    tokens: tuple[int, ...] | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    max_tokens: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    depth: int | None
    plain: bool


AUTO_DEPTH = -1


def read_generate(request: Any) -> Asked:
    """A GenerateRequest, checked. Raises InvalidArgument naming the field."""
    messages, text, tokens = _read_input(request)
    depth = read_depth(request.depth) if request.HasField("depth") else None
    check_plain(request.plain, depth)
    sampler = request.sampler
    return Asked(
        model=request.model.strip(),
        messages=messages,
        text=text,
        tokens=tokens,
        temperature=_given(sampler, "temperature", check_temperature),
        top_p=_given(sampler, "top_p", check_top_p),
        top_k=_given(sampler, "top_k", check_top_k),
        min_p=_given(sampler, "min_p", check_min_p),
        seed=_given(sampler, "seed", lambda seed: seed),
        max_tokens=_given(request, "max_tokens", check_max_tokens),
        stop=_check_stops(tuple(request.stop)),
        ignore_eos=request.ignore_eos,
        depth=depth,
        plain=request.plain,
    )


def read_sampler(request: Any, defaults: SamplerDefaults) -> SamplerSettings:
    """A SamplerRequest with what it leaves out filled in. Raises InvalidArgument naming the field."""
    return settle_sampler(
        _given(request, "temperature", check_temperature),
        _given(request, "top_p", check_top_p),
        _given(request, "top_k", check_top_k),
        _given(request, "min_p", check_min_p),
        _given(request, "seed", lambda seed: seed),
        defaults,
    )


def settle_sampler(
    temperature: float | None,
    top_p: float | None,
    top_k: int | None,
    min_p: float | None,
    seed: int | None,
    defaults: SamplerDefaults,
) -> SamplerSettings:
    """The sampler in force: the request, else the pack, else plain sampling; a seed is drawn if absent."""
    return SamplerSettings(
        temperature=_first(temperature, _usable(defaults.temperature, check_temperature), 1.0),
        top_p=_first(top_p, _usable(defaults.top_p, check_top_p), 1.0),
        top_k=int(_first(top_k, _usable(defaults.top_k, check_top_k), 0)),
        min_p=_first(min_p, _usable(defaults.min_p, check_min_p), 0.0),
        seed=secrets.randbits(SEED_BITS) if seed is None else seed,
    )


def read_depth(depth: Any) -> int:
    """A Depth message: its number, or AUTO_DEPTH."""
    choice = depth.WhichOneof("choice")
    if choice is None:
        raise InvalidArgument("depth says nothing", None, "give a number or auto", field="depth")
    return int(depth.fixed) if choice == "fixed" else AUTO_DEPTH


def check_plain(plain: bool, depth: int | None) -> None:
    """Plain decoding drafts nothing, whatever model it is asked of."""
    if plain and depth is not None and depth > 0:
        raise InvalidArgument("plain decoding has depth 0", depth, "leave out one of them", field="depth")


def check_temperature(value: float) -> float:
    """0 is greedy."""
    if value == 0 or TEMPERATURE_LOW <= value <= TEMPERATURE_HIGH:
        return abs(value)
    fix = f"give 0, or {TEMPERATURE_LOW} to {TEMPERATURE_HIGH:g}"
    raise InvalidArgument("temperature is out of range", value, fix, field="temperature")


def check_top_p(value: float) -> float:
    """1 is off."""
    if 0 < value <= 1:
        return value
    raise InvalidArgument("top_p is out of range", value, "give more than 0 and at most 1", field="top_p")


def check_top_k(value: int) -> int:
    """0 is off."""
    if value >= 0:
        return value
    raise InvalidArgument("top_k is out of range", value, "give 0 (off) or more", field="top_k")


def check_min_p(value: float) -> float:
    """0 is off."""
    if 0 <= value < 1:
        return value
    raise InvalidArgument("min_p is out of range", value, "give 0 (off) to less than 1", field="min_p")


def check_max_tokens(value: int) -> int:
    """At least one token is made."""
    if value >= 1:
        return value
    raise InvalidArgument(
        "max_tokens is out of range", value, "give a whole number from 1", field="max_tokens"
    )


def check_keep_alive(value: float) -> float:
    """Seconds; 0 unloads after use, -1 keeps until memory is needed."""
    if math.isfinite(value) and (value >= 0 or value == -1):
        return value
    raise InvalidArgument("keep-alive is out of range", value, "give 10m, 0 or -1", field="keep_alive_s")


def _read_input(request: Any) -> tuple[Any, str | None, tuple[int, ...] | None]:
    kind = request.WhichOneof("input")
    if kind == "tokens":
        _refuse_with(request, "token ids")
        return None, None, _check_tokens(tuple(request.tokens.ids))
    if kind == "prompt" and request.raw:
        _refuse_with(request, "a raw prompt")
        return None, _check_prompt(request.prompt, request.prompt), None
    if kind == "prompt":
        user = {"role": "user", "content": _check_prompt(request.prompt, request.prompt.strip())}
        return _with_system(request.system, (user,)), None, None
    if kind == "chat" and request.raw:
        raise InvalidArgument("messages need the chat template", None, "leave out raw", field="raw")
    if kind == "chat":
        return _with_system(request.system, _check_messages(request.chat.messages)), None, None
    raise InvalidArgument("no prompt", None, "give a prompt", field="prompt")


def _refuse_with(request: Any, what: str) -> None:
    if request.system:
        raise InvalidArgument(
            f"a system text cannot go with {what}", None, "put it into the prompt", field="system"
        )


def _check_prompt(prompt: str, meant: str) -> str:
    if not meant:
        raise InvalidArgument("empty prompt", None, "give some text", field="prompt")
    return prompt


def _check_tokens(ids: tuple[int, ...]) -> tuple[int, ...]:
    if not ids:
        raise InvalidArgument("empty prompt", None, "give at least one token id", field="tokens")
    return ids


def _check_messages(messages: Any) -> tuple[dict[str, str], ...]:
    for place, message in enumerate(messages):
        if message.role not in _ROLES:
            field = f"messages[{place}].role"
            raise InvalidArgument("unknown role", message.role, f"give {', '.join(_ROLES)}", field=field)
    read = tuple({"role": message.role, "content": message.content} for message in messages)
    _check_prompt("", "".join(message["content"] for message in read).strip())
    return read


def _with_system(system: str, messages: tuple[dict[str, str], ...]) -> tuple[dict[str, str], ...]:
    if not system:
        return messages
    if any(message["role"] == "system" for message in messages):
        raise InvalidArgument("two system texts", None, "give one of them", field="system")
    return ({"role": "system", "content": system}, *messages)


def _check_stops(stops: tuple[str, ...]) -> tuple[str, ...]:
    if "" in stops:
        raise InvalidArgument("empty stop string", None, "give text, or leave it out", field="stop")
    return stops


def _given(message: Any, name: str, check: Any) -> Any:
    return check(getattr(message, name)) if message.HasField(name) else None


def _usable(value: Any, check: Any) -> Any:
    """A pack's value, or None where it is out of range: its user cannot mend it."""
    try:
        return None if value is None else check(value)
    except InvalidArgument:
        return None


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
