"""Penalties, rules, structures and log-probabilities: what is sent for them, and what comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mtplx_client import AsyncClient, Client, Logprobs, Text, TokenLogprob
from mtplx_client.errors import InvalidArgument
from mtplx_client.events import LogitBias, Sampler, TopLogprob
from mtplx_client.generation import GenerateOptions, SamplerOptions
from mtplx_client.messages import decode, encode
from mtplx_proto.v1 import common_pb2, generation_pb2
from support.fake_daemon import FakeDaemon, final, logprobs, text

SETTINGS: dict[str, Any] = {
    "presence_penalty": 0.25,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.25,
    "acceptance": "block",
    "reproducible": True,
    "draft_temperature": 0.75,
    "draft_top_k": 9,
}


def test_every_setting_reaches_the_daemon(client: Client, daemon: FakeDaemon) -> None:
    client.complete("hi", logit_bias={5: 1.5, 9: -100}, logprobs=0, law_logprobs=True, **SETTINGS)
    (asked,) = daemon.requests("Generate")
    assert {name: getattr(asked.sampler, name) for name in SETTINGS} == SETTINGS
    assert [(bias.token, bias.bias) for bias in asked.sampler.logit_bias] == [(5, 1.5), (9, -100)]
    assert (asked.HasField("logprobs"), asked.logprobs, asked.law_logprobs) == (True, 0, True)


def test_nothing_is_sent_for_what_is_not_said(client: Client, daemon: FakeDaemon) -> None:
    client.complete("hi", logit_bias=None, reproducible=None, json_schema=None, logprobs=None)
    (asked,) = daemon.requests("Generate")
    assert [field.name for field, _ in asked.ListFields()] == ["prompt"]


def test_every_field_of_the_wire_has_an_option() -> None:
    sampler = {field.name for field in common_pb2.SamplerRequest.DESCRIPTOR.fields}
    assert set(SamplerOptions.__annotations__) == sampler
    request = {field.name for field in generation_pb2.GenerateRequest.DESCRIPTOR.fields}
    own = set(GenerateOptions.__annotations__) - set(SamplerOptions.__annotations__)
    assert own - {"messages"} | {"prompt", "chat", "sampler"} == request


@pytest.mark.parametrize("field", ["json_schema", "regex", "grammar"])
def test_a_structure_is_sent_as_it_is_written(client: Client, daemon: FakeDaemon, field: str) -> None:
    client.complete("hi", **{field: " {} "})  # type: ignore[arg-type]
    (asked,) = daemon.requests("Generate")
    assert (asked.WhichOneof("structure"), getattr(asked, field)) == (field, " {} ")


def test_a_schema_may_be_given_as_a_mapping(client: Client, daemon: FakeDaemon) -> None:
    schema = {"type": "object", "properties": {"größe": {"type": "integer"}}}
    client.complete("hi", json_schema=schema)
    assert json.loads(daemon.requests("Generate")[0].json_schema) == schema


@pytest.mark.parametrize("schema", [True, False])
def test_a_schema_of_one_word_is_a_schema(client: Client, daemon: FakeDaemon, schema: bool) -> None:
    client.complete("hi", json_schema=schema)
    assert json.loads(daemon.requests("Generate")[0].json_schema) is schema


def test_an_empty_structure_is_sent_for_the_daemon_to_refuse(client: Client, daemon: FakeDaemon) -> None:
    client.complete("hi", regex="")
    assert daemon.requests("Generate")[0].WhichOneof("structure") == "regex"


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("regex", {"json_schema": "{}", "regex": "a"}),
        ("grammar", {"regex": "a", "grammar": "b"}),
        ("json_schema", {"json_schema": {"enum": [object()]}}),
        ("json_schema", {"json_schema": {"maximum": float("nan")}}),
        ("logit_bias", {"logit_bias": {-1: 1.0}}),
        ("logit_bias", {"logit_bias": {2**32: 1.0}}),
        ("logit_bias", {"logit_bias": {"the": 1.0}}),
        ("logit_bias", {"logit_bias": {1: "much"}}),
        ("logprobs", {"logprobs": -1}),
        ("reproducible", {"reproducible": "very"}),
        ("draft_top_k", {"draft_top_k": 2**31}),
    ],
)
def test_what_the_wire_cannot_carry_is_refused_by_name(
    client: Client, daemon: FakeDaemon, field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.generate("hi", **options)
    assert caught.value.field == field
    assert caught.value.fix
    assert daemon.asked == []


def answer_with_logprobs(*_: object) -> Any:
    yield logprobs((11, -0.5, b"The"), law=-0.25)
    yield text("The", 11)
    yield logprobs((12, -1.5, b" R"), (13, -2.0, b"\xf0"))
    yield text(" R", 12, 13)
    yield final()


def test_logprobs_come_typed_before_their_text_and_add_up_in_the_reply(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.answer = answer_with_logprobs
    events = list(client.generate("hi", logprobs=1))
    assert [type(event) for event in events[:4]] == [Logprobs, Text, Logprobs, Text]
    reply = client.complete("hi", logprobs=1)
    assert reply.logprobs == [
        TokenLogprob(11, -0.5, b"The", (TopLogprob(11, -0.5, b"The"),), -0.25),
        TokenLogprob(12, -1.5, b" R", (TopLogprob(12, -1.5, b" R"),), None),
        TokenLogprob(13, -2.0, b"\xf0", (TopLogprob(13, -2.0, b"\xf0"),), None),
    ]
    assert [entry.token for entry in reply.logprobs] == reply.tokens


def test_the_asynchronous_client_says_the_same(client: Client, daemon: FakeDaemon) -> None:
    daemon.answer = answer_with_logprobs

    async def complete() -> Any:
        async with AsyncClient(daemon.socket) as other:
            return await other.complete("hi", logprobs=1, logit_bias={5: 1.5}, **SETTINGS)

    assert asyncio.run(complete()) == client.complete("hi", logprobs=1, logit_bias={5: 1.5}, **SETTINGS)
    first, second = daemon.requests("Generate")
    assert first == second


def test_a_reply_without_logprobs_has_none(client: Client) -> None:
    assert client.complete("hi").logprobs is None


def test_the_sampler_in_force_comes_whole(client: Client, daemon: FakeDaemon) -> None:
    sent = common_pb2.Sampler(
        temperature=0.5,
        top_p=1,
        acceptance="coupled",
        seed=7,
        repetition_penalty=1.25,
        presence_penalty=0.25,
        frequency_penalty=0.5,
        logit_bias=[common_pb2.LogitBias(token=5, bias=-3)],
        reproducible=True,
        draft_top_k=0,
    )
    daemon.answer = lambda *_: iter([final(sampler=sent)])
    sampler = client.complete("hi").sampler
    assert (sampler.repetition_penalty, sampler.presence_penalty, sampler.frequency_penalty) == (
        1.25,
        0.25,
        0.5,
    )
    assert (sampler.logit_bias, sampler.reproducible) == ((LogitBias(5, -3.0),), True)
    assert (sampler.draft_temperature, sampler.draft_top_k) == (None, 0)
    assert decode(Sampler, encode(sampler, common_pb2.Sampler())) == sampler
    assert encode(sampler, common_pb2.Sampler()) == sent
