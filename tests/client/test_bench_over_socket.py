"""Timing over the socket: order, seeds, warm-up and what is sent to be summed up."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.bench import WARM_TOKENS, Plan, measure_over_socket
from mtplx_client.errors import Internal
from mtplx_proto.v1 import common_pb2, tuning_pb2
from support.fake_daemon import FakeDaemon, final, text


@pytest.fixture(autouse=True)
def _answers_to_the_limit(daemon: FakeDaemon) -> None:
    def answer(request: Any, _context: object) -> Any:
        yield text("a", 1)
        yield text("", 2)
        yield text("bc", 3, 4)
        yield final("length", "max_tokens", stats=common_pb2.Stats(depth=request.depth.fixed, rounds=3))

    daemon.answer = answer
    daemon.measurement = tuning_pb2.Measurement(model="smollm2-135m", notes=["from the daemon"])


def measure(client: Client, *depths: int, **more: Any) -> Any:
    ticks = itertools.count()
    plan = Plan("smollm2-135m", depths, max_tokens=4, prompts=2, suite="chat")
    return measure_over_socket(client, plan, more, lambda _: None, clock=lambda: float(next(ticks)))


def test_depths_take_turns_prompt_by_prompt_with_one_seed_a_prompt(
    client: Client, daemon: FakeDaemon
) -> None:
    measure(client, 0, 1, 2, temperature=0.5)
    timed = [request for request in daemon.requests("Generate") if request.max_tokens == 4]
    assert [(r.prompt, r.depth.fixed, r.sampler.seed) for r in timed] == [
        ("Name three rivers.", 0, 100),
        ("Name three rivers.", 1, 100),
        ("Name three rivers.", 2, 100),
        ("Write a haiku.", 1, 101),
        ("Write a haiku.", 2, 101),
        ("Write a haiku.", 0, 101),
    ]
    assert all(r.ignore_eos and r.force and r.sampler.temperature == 0.5 for r in timed)


def test_every_depth_is_warmed_before_anything_is_timed(client: Client, daemon: FakeDaemon) -> None:
    measure(client, 0, 1)
    requests = daemon.requests("Generate")
    warm = [request.depth.fixed for request in requests if request.max_tokens == WARM_TOKENS]
    assert warm == [0, 0, 1]
    assert [request.max_tokens for request in requests[:3]] == [WARM_TOKENS] * 3


def test_times_count_tokens_even_where_their_text_lags(client: Client, daemon: FakeDaemon) -> None:
    measure(client, 0)
    (asked,) = daemon.requests("Summarise")
    run = asked.runs[0]
    assert (run.tokens, run.last_s - run.first_s) == (4, 2.0)
    assert run.first_s == 1.0
    assert run.stats.rounds == 3


def test_the_runs_go_to_the_daemon_in_their_order(client: Client, daemon: FakeDaemon) -> None:
    found = measure(client, 0, 1, seed=5)
    (asked,) = daemon.requests("Summarise")
    assert [(run.prompt, run.depth) for run in asked.runs] == [(0, 0), (0, 1), (1, 1), (1, 0)]
    assert (asked.model, asked.suite, asked.max_tokens, asked.sampler.seed) == ("smollm2-135m", "chat", 4, 5)
    assert daemon.requests("Suite")[0].seed == 5
    assert found.notes == ("from the daemon",)


def test_a_depth_beyond_the_head_is_left_out_and_said_so(client: Client, daemon: FakeDaemon) -> None:
    found = measure(client, 0, 9)
    assert {request.depth.fixed for request in daemon.requests("Generate")} == {0}
    assert found.notes == ("depth 9 left out: this head reaches 8", "from the daemon")


def test_a_run_that_ends_early_stops_the_measurement(client: Client, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([text("a", 1), final("cancelled", "operator")])
    with pytest.raises(Internal, match="operator"):
        measure(client, 0)
    assert daemon.requests("Summarise") == []


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_seeds_of_prompts_do_not_choose_the_rule(client: Client, daemon: FakeDaemon, rule: str) -> None:
    """What an answer without a seed is decoded with is what every seeded one then asks for."""

    def answer(request: Any, _context: object) -> Any:
        seeded = "coupled" if request.sampler.HasField("seed") else rule
        chosen = request.sampler.acceptance or seeded
        yield text("a", 1)
        yield final("length", "max_tokens", sampler=common_pb2.Sampler(acceptance=chosen))

    daemon.answer = answer
    measure(client, 0, 1)
    first, *others = daemon.requests("Generate")
    assert not first.sampler.HasField("seed")
    assert {request.sampler.acceptance for request in others} == {rule}
    (asked,) = daemon.requests("Summarise")
    assert asked.sampler.acceptance == rule


def test_a_rule_that_is_asked_for_is_kept_and_greedy_needs_none(client: Client, daemon: FakeDaemon) -> None:
    measure(client, 1, acceptance="block")
    assert {request.sampler.acceptance for request in daemon.requests("Generate")} == {"block"}
    daemon.asked.clear()
    daemon.answer = lambda *_: iter(
        [text("a", 1), final("length", "max_tokens", sampler=common_pb2.Sampler(acceptance="greedy"))]
    )
    measure(client, 1, temperature=0)
    assert not any(request.sampler.HasField("acceptance") for request in daemon.requests("Generate"))


def test_plain_decoding_is_not_asked_for_a_draft_of_its_own(client: Client, daemon: FakeDaemon) -> None:
    measure(client, 0, 2, draft_temperature=0.5, draft_top_k=9)
    asked = [(r.depth.fixed, r.sampler) for r in daemon.requests("Generate")]
    assert {depth for depth, _ in asked} == {0, 2}
    for depth, sampler in asked:
        assert sampler.HasField("draft_temperature") == sampler.HasField("draft_top_k") == (depth > 0)


def test_a_draft_of_plain_decoding_alone_is_left_for_the_daemon_to_refuse(
    client: Client, daemon: FakeDaemon
) -> None:
    measure(client, 0, draft_top_k=9)
    assert all(request.sampler.draft_top_k == 9 for request in daemon.requests("Generate"))
