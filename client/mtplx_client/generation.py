"""Builds a generation's request from keyword options and reads its events.

Owns the options' names and types, once, for both clients, the command line and measurements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, get_type_hints

from mtplx_proto.v1 import generation_pb2

from mtplx_client.errors import InvalidArgument
from mtplx_client.events import Event, Final, Logprobs, Progress, Text
from mtplx_client.messages import decode
from mtplx_client.names import model_ref
from mtplx_client.requests import filled, put_bias, put_depth


class SamplerOptions(TypedDict, total=False):
    """What is asked of the sampler; an absent option takes the pack's default, then the daemon's."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[int, float] | None
    acceptance: str | None
    reproducible: bool | None
    draft_temperature: float | None
    draft_top_k: int | None


class GenerateOptions(SamplerOptions, total=False):
    """What `generate` and `complete` take beside the prompt; an absent option takes the pack's or daemon's
    default.

    `logprobs` is how many alternatives each token names (0: its own log-probability alone); at most one of
    `json_schema`, `regex` and `grammar` says what the text must match. `n` answers of one prompt have the seeds
    `seed`, `seed` + 1, …; `priority` is interactive (the default) or background, which waits for the others.

    `session` names the conversation that the prompt, or the messages, go on with; `session_busy` says what to do while
    it answers somebody else: wait (the default), fork or refuse. `store` is on, write-only or off: whether the request
    takes from the disk and keeps there. `keep_alive_s` is the idle time of the model from now on; -1: until memory is
    needed.
    """

    model: str
    messages: Sequence[Mapping[str, str]]
    tokens: Sequence[int]
    system: str | None
    max_tokens: int | None
    stop: str | Sequence[str]
    ignore_eos: bool
    depth: int | str | None
    raw: bool
    plain: bool
    force: bool
    logprobs: int | None
    law_logprobs: bool
    json_schema: str | Mapping[str, Any] | bool | None
    regex: str | None
    grammar: str | None
    priority: str | None
    n: int | None
    session: str | None
    session_busy: str | None
    store: str | None
    keep_alive_s: float | None


_SAMPLER = tuple(get_type_hints(SamplerOptions))
_KNOWN = tuple(get_type_hints(GenerateOptions))
_STRUCTURES = ("json_schema", "regex", "grammar")


def generate_request(prompt: str | None, options: GenerateOptions) -> generation_pb2.GenerateRequest:
    """The request for a prompt, `messages` or `tokens` (exactly one). Raises InvalidArgument or TypeError."""
    for name in options:
        if name not in _KNOWN:
            raise TypeError(f"unknown option {name!r}; known: {', '.join(_KNOWN)}")
    if options.get("session") == "":  # the wire could not tell it from none, and nothing would be kept
        fix = "give one, or leave session out"
        raise InvalidArgument("no name for a session", "empty", fix, field="session")
    request = generation_pb2.GenerateRequest()
    _put_input(request, prompt, options)
    stop = () if (given := options.get("stop")) is None else given
    filled(
        request,
        model=model_ref(options.get("model") or ""),
        system=options.get("system"),
        max_tokens=options.get("max_tokens"),
        stop=[stop] if isinstance(stop, str) else list(stop),
        ignore_eos=options.get("ignore_eos"),
        raw=options.get("raw"),
        plain=options.get("plain"),
        force=options.get("force"),
        logprobs=options.get("logprobs"),
        law_logprobs=options.get("law_logprobs"),
        priority=options.get("priority"),
        n=options.get("n"),
        session=options.get("session"),
        session_busy=options.get("session_busy"),
        store=options.get("store"),
        keep_alive_s=options.get("keep_alive_s"),
    )
    _put_structure(request, options)
    sampler_request(request.sampler, options)
    put_depth(request, options.get("depth"))
    return request


def sampler_request(message: Any, options: SamplerOptions) -> None:
    """Fill a SamplerRequest from the sampler's options. Raises InvalidArgument naming the one that cannot be used."""
    filled(message, **{name: options.get(name) for name in _SAMPLER if name != "logit_bias"})
    for token, bias in (options.get("logit_bias") or {}).items():
        put_bias(message.logit_bias.add(), token, bias)


def read_event(message: Any) -> Event:
    """The typed event of a GenerateEvent."""
    chosen, choice = message.WhichOneof("event"), message.choice
    if chosen == "text":
        return decode(Text, message.text, choice=choice)
    if chosen == "progress":
        return decode(Progress, message.progress, choice=choice)
    if chosen == "logprobs":
        return decode(Logprobs, message.logprobs, choice=choice)
    return decode(Final, message.final, choice=choice)


def choices_of(options: GenerateOptions) -> int:
    """How many answers a request that was built asks for."""
    return options.get("n") or 1


def _put_input(request: generation_pb2.GenerateRequest, prompt: str | None, options: GenerateOptions) -> None:
    messages, tokens = options.get("messages"), options.get("tokens")
    if sum(given is not None for given in (prompt, messages, tokens)) != 1:
        raise InvalidArgument(
            "one input is needed", None, "give exactly one of prompt, messages and tokens", field="prompt"
        )
    if messages is not None:
        for message in messages:
            filled(request.chat.messages.add(), **_checked(message))
        request.chat.SetInParent()
    elif tokens is not None:
        filled(request.tokens, ids=list(tokens))
        request.tokens.SetInParent()
    else:
        filled(request, prompt=prompt)


def _put_structure(request: generation_pb2.GenerateRequest, options: GenerateOptions) -> None:
    """Set what the text must match; the wire could carry one only, and would drop the others unseen."""
    given = [name for name in _STRUCTURES if options.get(name) is not None]
    if len(given) > 1:
        raise InvalidArgument(
            "a text matches one structure", " and ".join(given), "give one of them", field=given[1]
        )
    schema = options.get("json_schema")
    text = schema if schema is None or isinstance(schema, str) else _as_json(schema)
    filled(request, json_schema=text, regex=options.get("regex"), grammar=options.get("grammar"))


def _as_json(schema: Mapping[str, Any] | bool) -> str:
    try:
        return json.dumps(dict(schema) if isinstance(schema, Mapping) else schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            "json_schema is no JSON", error, "give what JSON can say", field="json_schema"
        ) from None


def _checked(message: Mapping[str, str]) -> dict[str, str]:
    if set(message) != {"role", "content"}:
        raise InvalidArgument(
            "a message has other keys than role and content",
            ", ".join(sorted(map(str, message))) or "none",
            "give role and content",
            field="messages",
        )
    return dict(message)
