"""A client's words are checked before any work, and each refusal names its field."""

from __future__ import annotations

from typing import Any

import pytest
from mtplx_proto.v1 import common_pb2, generation_pb2
from mtplxd.errors import InvalidArgument
from mtplxd.rpc.validate import (
    AUTO_DEPTH,
    MOST_MESSAGES,
    MOST_STOPS,
    Structure,
    check_keep_alive,
    read_generate,
)
from mtplxd.rpc.validate_sampler import MOST_BIASES

NAN, INF = float("nan"), float("inf")


def request(**fields: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(**{"prompt": "hi", "model": "a", **fields})


def chat(*messages: tuple[str, str], **fields: Any) -> generation_pb2.GenerateRequest:
    said = [generation_pb2.Message(role=role, content=content) for role, content in messages]
    return generation_pb2.GenerateRequest(chat=generation_pb2.Chat(messages=said), **fields)


def biased(count: int) -> generation_pb2.GenerateRequest:
    entries = [common_pb2.LogitBias(token=token, bias=1.0) for token in range(count)]
    return request(sampler=common_pb2.SamplerRequest(logit_bias=entries))


BAD = [
    ("max_tokens", request(max_tokens=0)),
    ("stop", request(stop=["ok", ""])),
    ("stop", request(stop=["ok"] * (MOST_STOPS + 1))),
    ("messages", chat(*[("user", "hi")] * (MOST_MESSAGES + 1))),
    ("logit_bias", biased(MOST_BIASES + 1)),
    ("prompt", request(prompt="")),
    ("prompt", request(prompt=" \n\t")),
    ("prompt", generation_pb2.GenerateRequest(model="a")),
    ("prompt", chat()),
    ("prompt", chat(("user", "  "))),
    ("tokens", generation_pb2.GenerateRequest(tokens=generation_pb2.TokenIds())),
    ("messages[1].role", chat(("user", "hi"), ("robot", "hi"))),
    ("raw", chat(("user", "hi"), raw=True)),
    ("system", request(raw=True, system="be brief")),
    ("system", chat(("system", "a"), ("user", "b"), system="c")),
    ("depth", request(depth=common_pb2.Depth())),
    ("depth", request(plain=True, depth=common_pb2.Depth(fixed=2))),
    ("logprobs", request(logprobs=21)),
    ("law_logprobs", request(law_logprobs=True)),
    ("json_schema", request(json_schema="")),
    ("json_schema", request(json_schema=" \n")),
    ("regex", request(regex="")),
    ("grammar", request(grammar="\t")),
    ("ignore_eos", request(regex="a+", ignore_eos=True)),
    ("ignore_eos", request(json_schema="{}", ignore_eos=True)),
    ("draft_temperature", request(plain=True, sampler=common_pb2.SamplerRequest(draft_temperature=0.5))),
    (
        "draft_top_k",
        request(depth=common_pb2.Depth(fixed=0), sampler=common_pb2.SamplerRequest(draft_top_k=5)),
    ),
    ("temperature", request(sampler=common_pb2.SamplerRequest(temperature=NAN))),
    ("priority", request(priority="urgent")),
    ("priority", request(priority="Interactive")),
    ("n", request(n=0)),
    ("n", request(n=17)),
]


@pytest.mark.parametrize(("field", "bad"), BAD, ids=[f"{field}-{i}" for i, (field, _) in enumerate(BAD)])
def test_a_bad_value_is_refused_by_name(field: str, bad: generation_pb2.GenerateRequest) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_generate(bad)
    assert refused.value.field == field


def test_the_edges_of_each_range_are_good() -> None:
    read_generate(request(max_tokens=1, plain=True, depth=common_pb2.Depth(fixed=0)))
    assert read_generate(request(logprobs=20, law_logprobs=True)).logprobs == 20
    assert read_generate(request(logprobs=0)).logprobs == 0
    assert read_generate(request()).logprobs is None


def test_one_structure_comes_through_as_it_was_written() -> None:
    assert read_generate(request(regex=" ")).structure == Structure("regex", " ")
    assert read_generate(request(grammar='start: "a"')).structure == Structure("grammar", 'start: "a"')
    assert read_generate(request()).structure is None


def test_white_space_is_a_prompt_when_it_is_raw() -> None:
    assert read_generate(request(prompt=" ", raw=True)).text == " "


def test_a_prompt_and_a_system_text_become_messages() -> None:
    asked = read_generate(request(prompt="hi", system="be brief"))
    assert asked.messages == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    )


def test_auto_is_a_depth_of_its_own() -> None:
    assert read_generate(request(depth=common_pb2.Depth(auto=True))).depth == AUTO_DEPTH
    assert read_generate(request()).depth is None


@pytest.mark.parametrize("seconds", [NAN, INF, -2, -0.5])
def test_keep_alive_is_a_time_or_for_ever(seconds: float) -> None:
    with pytest.raises(InvalidArgument):
        check_keep_alive(seconds)
    assert check_keep_alive(-1) == -1
    assert check_keep_alive(0) == 0


def test_an_unknown_priority_is_told_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"\(-1\): give interactive or background"):
        read_generate(request(priority="-1"))


def test_one_interactive_answer_unless_told_otherwise() -> None:
    asked = read_generate(request())
    assert (asked.priority, asked.n) == ("interactive", 1)
    asked = read_generate(request(priority=" background\n", n=16))
    assert (asked.priority, asked.n) == ("background", 16)
