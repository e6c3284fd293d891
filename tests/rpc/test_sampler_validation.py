"""A sampler as asked becomes the sampler in force: each refusal names its field, and nothing asked for is dropped."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from mtplx_proto.v1 import common_pb2
from mtplxd.engine.request import DEFAULT_RULE, DraftSampler, SamplerSettings
from mtplxd.errors import InvalidArgument
from mtplxd.residency.catalog import SamplerDefaults
from mtplxd.rpc import messages
from mtplxd.rpc.validate_sampler import AskedSampler, read_sampler, settle_sampler, without_seed

NAN, INF = float("nan"), float("inf")
VOCAB = 300
SILENT = SamplerDefaults()


def wire(*bias: tuple[int, float], **said: Any) -> common_pb2.SamplerRequest:
    entries = [common_pb2.LogitBias(token=token, bias=value) for token, value in bias]
    return common_pb2.SamplerRequest(logit_bias=entries, **said)


def settle(
    *bias: tuple[int, float], pack: SamplerDefaults = SILENT, vocab: int = VOCAB, **said: Any
) -> SamplerSettings:
    return settle_sampler(read_sampler(wire(*bias, **said)), pack, vocab)


BAD = [
    ("temperature", wire(temperature=NAN)),
    ("temperature", wire(temperature=INF)),
    ("temperature", wire(temperature=-0.1)),
    ("temperature", wire(temperature=1e-9)),
    ("temperature", wire(temperature=1e9)),
    ("top_p", wire(top_p=0)),
    ("top_p", wire(top_p=1.01)),
    ("top_p", wire(top_p=NAN)),
    ("top_k", wire(top_k=-1)),
    ("min_p", wire(min_p=1.01)),
    ("min_p", wire(min_p=-0.1)),
    ("min_p", wire(min_p=NAN)),
    ("presence_penalty", wire(presence_penalty=2.01)),
    ("presence_penalty", wire(presence_penalty=-2.01)),
    ("presence_penalty", wire(presence_penalty=NAN)),
    ("frequency_penalty", wire(frequency_penalty=2.01)),
    ("frequency_penalty", wire(frequency_penalty=-INF)),
    ("repetition_penalty", wire(repetition_penalty=0)),
    ("repetition_penalty", wire(repetition_penalty=-1)),
    ("repetition_penalty", wire(repetition_penalty=1e-40)),
    ("repetition_penalty", wire(repetition_penalty=10.1)),
    ("repetition_penalty", wire(repetition_penalty=NAN)),
    ("logit_bias", wire((5, 1.0), (5, 1.0))),
    ("logit_bias", wire((5, 100.5))),
    ("logit_bias", wire((5, -100.5))),
    ("logit_bias", wire((5, NAN))),
    ("logit_bias", wire((5, INF))),
    ("acceptance", wire(acceptance="typical")),
    ("acceptance", wire(acceptance="")),
    ("acceptance", wire(acceptance="greedy")),
    ("acceptance", wire(reproducible=True, acceptance="token")),
    ("acceptance", wire(reproducible=True, acceptance="block")),
    ("draft_temperature", wire(draft_temperature=-1)),
    ("draft_temperature", wire(draft_temperature=NAN)),
    ("draft_temperature", wire(temperature=0, draft_temperature=0.5)),
    ("draft_top_k", wire(draft_top_k=-1)),
    ("draft_top_k", wire(draft_top_k=129)),
    ("draft_top_k", wire(temperature=0, draft_top_k=5)),
    ("draft_top_k", wire(draft_temperature=0, draft_top_k=5)),
]


@pytest.mark.parametrize(("field", "bad"), BAD, ids=[f"{field}-{i}" for i, (field, _) in enumerate(BAD)])
def test_a_bad_value_is_refused_by_name(field: str, bad: common_pb2.SamplerRequest) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_sampler(bad)
    assert refused.value.field == field
    assert refused.value.fix


def test_the_edges_of_each_range_are_good() -> None:
    read_sampler(wire(temperature=0, top_p=1, top_k=0, min_p=0, seed=2**64 - 1))
    read_sampler(wire(temperature=100, top_p=1e-6, min_p=1))
    read_sampler(wire(presence_penalty=-2, frequency_penalty=2, repetition_penalty=10))
    read_sampler(wire((0, 100.0), (1, -100.0), repetition_penalty=0.01))
    read_sampler(wire(draft_temperature=0, draft_top_k=0))
    read_sampler(wire(draft_top_k=128))


@pytest.mark.parametrize("token", [VOCAB, 2**32 - 1])
def test_a_bias_of_an_id_that_is_none_is_refused(token: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        settle((1, 2.0), (token, 2.0))
    assert (refused.value.field, refused.value.value) == ("logit_bias", token)
    assert settle((VOCAB - 1, 2.0)).logit_bias == ((VOCAB - 1, 2.0),)


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ({}, DEFAULT_RULE),
        ({"seed": 7}, "coupled"),
        ({"seed": 0}, "coupled"),
        ({"seed": 7, "acceptance": "token"}, "token"),
        ({"seed": 7, "acceptance": "block"}, "block"),
        ({"acceptance": "coupled"}, "coupled"),
        ({"reproducible": True}, "coupled"),
        ({"reproducible": True, "acceptance": "coupled"}, "coupled"),
        ({"reproducible": False}, DEFAULT_RULE),
        ({"temperature": 0.0, "seed": 7}, "greedy"),
        ({"temperature": 0.0, "acceptance": "block"}, "greedy"),
        ({"temperature": 0.0, "reproducible": True}, "greedy"),
    ],
)
def test_the_rule_is_the_one_named_else_a_seeds_else_the_default(said: dict[str, Any], rule: str) -> None:
    settled = settle(**said)
    assert settled.rule == rule
    assert settled.reproducible == said.get("reproducible", False)


def test_a_seed_that_measures_does_not_choose_the_rule() -> None:
    asked = without_seed(read_sampler(wire(seed=7)))
    assert settle_sampler(asked, SILENT, VOCAB).rule == DEFAULT_RULE
    for said in ({"acceptance": "coupled"}, {"reproducible": True}):
        asked = without_seed(read_sampler(wire(seed=7, **said)))
        assert settle_sampler(asked, SILENT, VOCAB).rule == "coupled"


PACK = SamplerDefaults(
    temperature=0.6,
    top_p=0.9,
    top_k=30,
    min_p=0.1,
    repetition_penalty=1.1,
    presence_penalty=0.25,
    frequency_penalty=0.5,
    draft_temperature=0.4,
    draft_top_k=8,
)
ASKED: dict[str, Any] = {
    "temperature": 0.7,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.2,
    "repetition_penalty": 1.3,
    "presence_penalty": -1.0,
    "frequency_penalty": 0.75,
}
NEUTRAL = SamplerSettings()


@pytest.mark.parametrize("name", ASKED)
def test_the_request_goes_before_the_pack_and_the_pack_before_the_daemon(name: str) -> None:
    assert getattr(settle(pack=PACK, **{name: ASKED[name]}), name) == ASKED[name]
    assert getattr(settle(pack=PACK), name) == getattr(PACK, name)
    assert getattr(settle(), name) == getattr(NEUTRAL, name)


@pytest.mark.parametrize(
    ("name", "neutral"),
    [
        ("temperature", 0.0),
        ("top_p", 1.0),
        ("top_k", 0),
        ("min_p", 0.0),
        ("repetition_penalty", 1.0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
    ],
)
def test_a_neutral_value_from_a_client_is_not_absence(name: str, neutral: float) -> None:
    assert getattr(settle(pack=PACK, **{name: neutral}), name) == neutral


def test_every_default_of_a_pack_is_tried_here() -> None:
    names = {field.name for field in fields(SamplerDefaults)}
    assert names == {*ASKED, "draft_temperature", "draft_top_k"}


def test_a_draft_takes_each_of_its_settings_from_the_request_else_the_pack() -> None:
    assert settle(pack=PACK).draft == DraftSampler(0.4, 8)
    assert settle(pack=PACK, draft_temperature=0.2).draft == DraftSampler(0.2, 8)
    assert settle(pack=PACK, draft_top_k=0).draft == DraftSampler(0.4, 0)
    assert settle().draft == DraftSampler()


def test_a_greedy_draft_has_no_top_k_and_the_one_that_was_asked_for_is_never_dropped() -> None:
    assert settle(pack=PACK, draft_temperature=0).draft == DraftSampler(0.0, None)
    greedy = SamplerDefaults(draft_temperature=0.0, draft_top_k=8)
    assert settle(pack=greedy).draft == DraftSampler(0.0, None)
    assert settle(pack=greedy, draft_top_k=5).draft == DraftSampler(None, 5)


def test_a_draft_of_greedy_decoding_is_the_targets_whatever_the_pack_says() -> None:
    assert settle(pack=PACK, temperature=0).draft == DraftSampler()


def test_a_drafts_settings_are_refused_where_the_pack_makes_decoding_greedy() -> None:
    greedy = SamplerDefaults(temperature=0.0)
    with pytest.raises(InvalidArgument) as refused:
        settle(pack=greedy, draft_top_k=5)
    assert refused.value.field == "draft_top_k"
    assert settle(pack=greedy, temperature=0.5, draft_top_k=5).draft == DraftSampler(None, 5)


@pytest.mark.parametrize(
    "senseless",
    [
        SamplerDefaults(temperature=-3.0),
        SamplerDefaults(top_p=0.0),
        SamplerDefaults(min_p=7.0),
        SamplerDefaults(repetition_penalty=0.0),
        SamplerDefaults(presence_penalty=NAN),
        SamplerDefaults(frequency_penalty=50.0),
        SamplerDefaults(draft_temperature=-1.0),
    ],
)
def test_a_packs_senseless_recommendation_is_passed_over(senseless: SamplerDefaults) -> None:
    assert settle(pack=senseless, seed=1) == settle(seed=1)


def test_seeds_are_drawn_when_none_is_given() -> None:
    assert len({settle().seed for _ in range(8)}) == 8
    assert len({settle(reproducible=True).seed for _ in range(8)}) == 8
    assert settle(seed=7).seed == 7


def test_the_echo_says_the_whole_sampler() -> None:
    settled = settle((5, 1.5), (9, -2.0), seed=7, reproducible=True, draft_temperature=0.3, **ASKED)
    echo = messages.sampler_message(settled)
    assert {name: getattr(echo, name) for name in ASKED} == ASKED
    assert [(entry.token, entry.bias) for entry in echo.logit_bias] == [(5, 1.5), (9, -2.0)]
    assert (echo.seed, echo.acceptance, echo.reproducible) == (7, "coupled", True)
    assert echo.draft_temperature == 0.3
    assert not echo.HasField("draft_top_k")
    assert {field.name for field in echo.DESCRIPTOR.fields} == {
        field.name for field, _ in echo.ListFields()
    } | {"draft_top_k"}


def test_nothing_a_client_can_say_is_left_unread() -> None:
    on_the_wire = {field.name for field in common_pb2.SamplerRequest.DESCRIPTOR.fields}
    read = {field.name for field in fields(AskedSampler)} - {"draft"} | {"draft_temperature", "draft_top_k"}
    assert read == on_the_wire
