"""What a client's words mean, checked before any work. Plain values come out; no model is known here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mtplxd.engine.request import BACKGROUND, INTERACTIVE, LOGPROBS_LIMIT
from mtplxd.errors import InvalidArgument
from mtplxd.rpc.validate_sampler import AskedSampler, read_sampler, refuse_draft

_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Structure:
    """What the text must match."""

    kind: Literal["json_schema", "regex", "grammar"]
    text: str


@dataclass(frozen=True)
class Asked:
    """A generation as asked. None where the client said nothing; `depth` -1 is `auto`.

    Exactly one of `messages`, `text` and `tokens` is set. `tokens` are the message's own: to copy millions takes
    a while, and nobody knows yet whether they fit.
    """

    model: str
    messages: tuple[dict[str, str], ...] | None
    text: str | None
    tokens: Sequence[int] | None
    sampler: AskedSampler
    max_tokens: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    depth: int | None
    plain: bool
    force: bool
    logprobs: int | None
    law_logprobs: bool
    structure: Structure | None
    priority: str
    n: int
    keep_alive_s: float | None = None


AUTO_DEPTH = -1
PRIORITIES = (INTERACTIVE, BACKGROUND)
MOST_CHOICES = 16
MOST_STOPS, MOST_MESSAGES = 64, 1 << 16
"""Each stop string is looked for with every token; each message is looked at before anything else is done."""


def read_generate(request: Any) -> Asked:
    """A GenerateRequest, checked. Raises InvalidArgument naming the field."""
    messages, text, tokens = _read_input(request)
    depth = read_depth(request.depth) if request.HasField("depth") else None
    check_plain(request.plain, depth)
    sampler = read_sampler(request.sampler)
    if request.plain or depth == 0:
        refuse_draft(sampler.draft, "plain decoding drafts nothing")
    logprobs = _given(request, "logprobs", check_logprobs)
    if request.law_logprobs and logprobs is None:
        fix = "give logprobs too"
        raise InvalidArgument("law_logprobs without logprobs", None, fix, field="law_logprobs")
    return Asked(
        model=request.model.strip(),
        messages=messages,
        text=text,
        tokens=tokens,
        sampler=sampler,
        max_tokens=_given(request, "max_tokens", check_max_tokens),
        stop=_check_stops(request.stop),
        ignore_eos=request.ignore_eos,
        depth=depth,
        plain=request.plain,
        force=request.force,
        logprobs=logprobs,
        law_logprobs=request.law_logprobs,
        structure=_read_structure(request),
        priority=check_priority(request.priority.strip() or INTERACTIVE),
        n=_given(request, "n", check_choices) or 1,
        keep_alive_s=_given(request, "keep_alive_s", check_keep_alive),
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


def check_max_tokens(value: int) -> int:
    """At least one token is made."""
    if value >= 1:
        return value
    raise InvalidArgument(
        "max_tokens is out of range", value, "give a whole number from 1", field="max_tokens"
    )


def check_logprobs(value: int) -> int:
    """How many alternatives a token names; 0 names none beside itself."""
    if value <= LOGPROBS_LIMIT:
        return value
    raise InvalidArgument(
        "too many log-probabilities a token", value, f"give 0 to {LOGPROBS_LIMIT}", field="logprobs"
    )


def check_priority(value: str) -> str:
    """Whom a request lets go first."""
    if value in PRIORITIES:
        return value
    raise InvalidArgument("unknown priority", value, f"give {' or '.join(PRIORITIES)}", field="priority")


def check_choices(value: int) -> int:
    """How many answers to one prompt."""
    if 1 <= value <= MOST_CHOICES:
        return value
    raise InvalidArgument("number of answers is out of range", value, f"give 1 to {MOST_CHOICES}", field="n")


def check_keep_alive(value: float) -> float:
    """Seconds; 0 unloads after use, -1 keeps until memory is needed."""
    if math.isfinite(value) and (value >= 0 or value == -1):
        return value
    raise InvalidArgument("keep-alive is out of range", value, "give 10m, 0 or -1", field="keep_alive_s")


def _read_input(request: Any) -> tuple[Any, str | None, Sequence[int] | None]:
    kind = request.WhichOneof("input")
    if kind == "tokens":
        _refuse_with(request, "token ids")
        return None, None, _check_tokens(request.tokens.ids)
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


def _check_tokens(ids: Sequence[int]) -> Sequence[int]:
    if not ids:
        raise InvalidArgument("empty prompt", None, "give at least one token id", field="tokens")
    return ids


def _check_messages(messages: Any) -> tuple[dict[str, str], ...]:
    if len(messages) > MOST_MESSAGES:
        raise InvalidArgument(
            "too many messages", len(messages), f"give at most {MOST_MESSAGES}", field="messages"
        )
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


def _check_stops(stops: Sequence[str]) -> tuple[str, ...]:
    if len(stops) > MOST_STOPS:
        raise InvalidArgument("too many stop strings", len(stops), f"give at most {MOST_STOPS}", field="stop")
    if "" in stops:
        raise InvalidArgument("empty stop string", None, "give text, or leave it out", field="stop")
    return tuple(stops)


def _read_structure(request: Any) -> Structure | None:
    kind = request.WhichOneof("structure")
    if kind is None:
        return None
    text = getattr(request, kind)
    if not text or (kind != "regex" and not text.strip()):
        raise InvalidArgument(f"empty {kind}", None, "give one, or leave it out", field=kind)
    if request.ignore_eos:
        raise InvalidArgument(
            f"{kind} says where the text ends", None, "leave out ignore_eos", field="ignore_eos"
        )
    return Structure(kind, text)


def _given(message: Any, name: str, check: Any) -> Any:
    return check(getattr(message, name)) if message.HasField(name) else None
