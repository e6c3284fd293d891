"""A client's words are checked before any work, and each refusal names its field."""

from __future__ import annotations

from typing import Any

import pytest
from mtplx_proto.v1 import common_pb2, generation_pb2
from mtplxd.errors import InvalidArgument
from mtplxd.residency.catalog import SamplerDefaults
from mtplxd.rpc.validate import AUTO_DEPTH, check_keep_alive, read_generate, settle_sampler

NAN, INF = float("nan"), float("inf")


def request(**fields: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(**{"prompt": "hi", "model": "a", **fields})


def sampler(**fields: Any) -> generation_pb2.GenerateRequest:
    return request(sampler=common_pb2.SamplerRequest(**fields))


def chat(*messages: tuple[str, str], **fields: Any) -> generation_pb2.GenerateRequest:
    said = [generation_pb2.Message(role=role, content=content) for role, content in messages]
    return generation_pb2.GenerateRequest(chat=generation_pb2.Chat(messages=said), **fields)


BAD = [
    ("temperature", sampler(temperature=NAN)),
    ("temperature", sampler(temperature=INF)),
    ("temperature", sampler(temperature=-0.1)),
    ("temperature", sampler(temperature=1e-9)),
    ("temperature", sampler(temperature=1e9)),
    ("top_p", sampler(top_p=0)),
    ("top_p", sampler(top_p=1.01)),
    ("top_p", sampler(top_p=NAN)),
    ("top_k", sampler(top_k=-1)),
    ("min_p", sampler(min_p=1)),
    ("min_p", sampler(min_p=-0.1)),
    ("min_p", sampler(min_p=NAN)),
    ("max_tokens", request(max_tokens=0)),
    ("stop", request(stop=["ok", ""])),
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
]


@pytest.mark.parametrize(("field", "bad"), BAD, ids=[f"{field}-{i}" for i, (field, _) in enumerate(BAD)])
def test_a_bad_value_is_refused_by_name(field: str, bad: generation_pb2.GenerateRequest) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_generate(bad)
    assert refused.value.field == field


def test_the_edges_of_each_range_are_good() -> None:
    read_generate(sampler(temperature=0, top_p=1, top_k=0, min_p=0, seed=2**64 - 1))
    read_generate(sampler(temperature=100, top_p=1e-6, min_p=0.999))
    read_generate(request(max_tokens=1, plain=True, depth=common_pb2.Depth(fixed=0)))


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


def test_the_request_goes_before_the_pack_and_the_pack_before_the_daemon() -> None:
    pack = SamplerDefaults(temperature=0.6, top_p=0.9)
    settled = settle_sampler(None, 0.5, None, None, 7, pack)
    assert (settled.temperature, settled.top_p, settled.top_k, settled.min_p) == (0.6, 0.5, 0, 0.0)
    assert settled.seed == 7
    bare = settle_sampler(None, None, None, None, 7, SamplerDefaults())
    assert (bare.temperature, bare.top_p) == (1.0, 1.0)


def test_zero_from_a_client_is_not_absence() -> None:
    assert settle_sampler(0.0, None, 0, None, 0, SamplerDefaults(temperature=0.6, top_k=20)).greedy


def test_a_packs_senseless_recommendation_is_passed_over() -> None:
    assert settle_sampler(None, None, None, None, 1, SamplerDefaults(temperature=-3.0)).temperature == 1.0


def test_seeds_are_drawn_when_none_is_given() -> None:
    seeds = {settle_sampler(None, None, None, None, None, SamplerDefaults()).seed for _ in range(8)}
    assert len(seeds) == 8


@pytest.mark.parametrize("seconds", [NAN, INF, -2, -0.5])
def test_keep_alive_is_a_time_or_for_ever(seconds: float) -> None:
    with pytest.raises(InvalidArgument):
        check_keep_alive(seconds)
    assert check_keep_alive(-1) == -1
    assert check_keep_alive(0) == 0
