"""Measuring, summing and suites through a real daemon and its client; no time is asserted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from mtplx_client import Client
from mtplx_client.bench import Plan, measure_over_socket
from mtplx_client.events import Progress
from mtplx_client.generation import SamplerOptions
from mtplxd.engine.request import DEFAULT_RULE
from mtplxd.errors import Cancelled, FailedPrecondition, InvalidArgument, MtplxError, NotFound
from support.daemon_process import DaemonProcess, running_daemon, short_folder
from support.tiny_pack import VOCAB, make_tiny_pack

SAMPLER: SamplerOptions = {"temperature": 0.6, "top_p": 0.95}
TOKENS = 12


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with short_folder() as home:
        make_tiny_pack(home / "packs" / "tiny")
        make_tiny_pack(home / "packs" / "headless", head=False)
        with running_daemon(home) as process:
            yield process


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(socket=daemon.socket) as client:
        yield client


def test_depths_are_measured_in_pairs_with_all_that_is_needed_to_judge_them(client: Client) -> None:
    said: list[Progress] = []
    found = client.measure(
        "tiny",
        depths=(0, 1, 2),
        prompts=2,
        max_tokens=TOKENS,
        suite="chat",
        on_progress=said.append,
        **SAMPLER,
    )
    assert [row.depth for row in found.rows] == [0, 1, 2]
    assert found.order == ("0:0", "0:1", "0:2", "1:1", "1:2", "1:0")
    assert found.rows[0].ratio_vs_plain == 1.0
    for row in found.rows:
        assert row.tok_s > 0
        assert row.runs == 2
        assert row.efficiency > 0
        assert row.ideal_round_ms > 0
        assert len(row.acceptance_by_position) == row.depth
    assert (found.model, found.suite, found.max_tokens) == ("tiny", "chat", TOKENS)
    assert (found.sampler.temperature, found.sampler.top_p, found.sampler.seed) == (0.6, 0.95, 0)
    machine = found.machine
    assert machine.chip
    assert machine.memory
    assert machine.mlx
    assert machine.blas
    assert machine.bandwidth_gb_s > 0
    measuring = [step for step in said if step.stage == "measure"]
    assert measuring[-1].done == measuring[-1].total == 6
    assert any(step.eta_s > 0 for step in measuring)


def test_the_same_seed_measures_the_same_texts(client: Client) -> None:
    first, again = (
        client.measure("tiny", depths=(2,), prompts=2, max_tokens=TOKENS, seed=9, **SAMPLER) for _ in range(2)
    )
    assert first.rows[0].acceptance_by_position == again.rows[0].acceptance_by_position
    assert [run.stats.rounds for run in first.runs] == [run.stats.rounds for run in again.runs]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"acceptance": "block", "repetition_penalty": 1.2, "presence_penalty": 0.5, "logit_bias": {100: 2.0}},
        {"acceptance": "coupled", "draft_temperature": 0.9},
        {"acceptance": "coupled", "reproducible": True},
    ],
    ids=["default", "shaped", "coupled", "reproducible"],
)
def test_both_paths_decode_the_same_rounds(client: Client, more: SamplerOptions) -> None:
    """Over the socket the clock is the client's; prompts, seeds, order and sums are the daemon's."""
    asked: SamplerOptions = {**SAMPLER, "seed": 3, **more}
    inside = client.measure("tiny", depths=(0, 2), prompts=2, max_tokens=TOKENS, **asked)
    plan = Plan("tiny", (0, 2), TOKENS, 2)
    outside = measure_over_socket(client, plan, asked, lambda _: None)
    assert outside.order == inside.order
    assert outside.sampler == inside.sampler
    assert inside.sampler.acceptance == more.get("acceptance", DEFAULT_RULE)
    for ours, theirs in zip(inside.rows, outside.rows, strict=True):
        assert theirs.acceptance_by_position == ours.acceptance_by_position
        assert theirs.rounds == ours.rounds
        assert theirs.tokens_per_round == ours.tokens_per_round
        assert theirs.efficiency == 0.0  # nobody timed the forwards alone


def test_a_depth_beyond_the_head_is_clipped_and_said(client: Client) -> None:
    found = client.measure("tiny", depths=(0, 99), prompts=1, max_tokens=4, **SAMPLER)
    deepest = found.rows[-1].depth
    assert [row.depth for row in found.rows] == [0, deepest]
    assert found.notes == (f"depth 99 clipped to {deepest}: the head's limit is {deepest}",)


def test_a_model_without_a_head_is_measured_plainly(client: Client) -> None:
    found = client.measure("headless", depths=(0, 2), prompts=1, max_tokens=4, **SAMPLER)
    assert [row.depth for row in found.rows] == [0]
    assert found.notes == ("depth 2 clipped to 0: the model is loaded without a head",)


def test_without_depth_0_there_is_no_ratio(client: Client) -> None:
    found = client.measure("tiny", depths=(1,), prompts=1, max_tokens=TOKENS, **SAMPLER)
    assert found.rows[0].ratio_vs_plain == 0.0


def test_the_suite_names_the_prompts_and_seeds_that_are_measured(client: Client) -> None:
    suite = client.suite("code", prompts=3, seed=5)
    assert suite.suite == "code"
    assert [(prompt.index, prompt.seed) for prompt in suite.prompts] == [(0, 5), (1, 6), (2, 7)]
    assert client.suite().suite == "mixed"


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"suite": "chatt"}, InvalidArgument, "unknown suite"),
        ({"prompts": 1000}, InvalidArgument, "too many prompts"),
        ({"max_tokens": 1}, InvalidArgument, "too few tokens to measure"),
        ({"max_tokens": 100_000}, InvalidArgument, "answers are longer than the context"),
        ({"temperature": -1.0}, InvalidArgument, "temperature is out of range"),
        ({"logit_bias": {VOCAB: 1.0}}, InvalidArgument, "logit_bias names an unknown token id"),
        ({"reproducible": True, "acceptance": "block"}, InvalidArgument, "coupled rule"),
        ({"draft_top_k": 5}, InvalidArgument, "drafts nothing"),
        ({"model": "headless", "depths": (2,), "draft_top_k": 5}, InvalidArgument, "drafts nothing"),
        ({"model": "tinny"}, NotFound, "tinny"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    client: Client, wrong: dict[str, object], kind: type[MtplxError], says: str
) -> None:
    asked = {"model": "tiny", "depths": (0,), "prompts": 1, **wrong}
    with pytest.raises(kind, match=says):
        client.measure(**asked)  # type: ignore[arg-type]


def test_runs_that_cannot_have_happened_are_refused(client: Client) -> None:
    found = client.measure("tiny", depths=(0,), prompts=1, max_tokens=4, **SAMPLER)
    [run] = found.runs
    for wrong in (replace(run, last_s=run.first_s - 1), replace(run, first_s=float("nan"))):
        with pytest.raises(InvalidArgument):
            client.summarise("tiny", [wrong], found.sampler)
    with pytest.raises(InvalidArgument, match="no runs"):
        client.summarise("tiny", [], found.sampler)


def test_a_client_that_leaves_gives_engine_and_model_back(client: Client, daemon: DaemonProcess) -> None:
    class Left(Exception):
        pass

    def leave(step: Progress) -> None:
        if step.stage == "measure" and step.done == 1:
            raise Left

    with pytest.raises(Left), Client(socket=daemon.socket) as other:
        other.measure("tiny", depths=(0, 1), prompts=60, max_tokens=400, on_progress=leave, **SAMPLER)
    # the next answer is served, and unloading finds nobody holding the model
    assert client.complete("hi", model="tiny", max_tokens=2, force=True).usage.completion_tokens > 0
    client.unload("tiny")


def test_others_wait_for_the_measurement_and_nothing_can_unload_its_model(
    client: Client, daemon: DaemonProcess
) -> None:
    begun, seen = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def on_progress(step: Progress) -> None:
        if step.stage == "measure" and step.done == 1:
            begun.set()
        if seen.is_set():
            raise Cancelled("enough")

    def measure() -> None:
        with Client(socket=daemon.socket) as other:
            try:
                other.measure(
                    "tiny", depths=(0,), prompts=60, max_tokens=500, on_progress=on_progress, **SAMPLER
                )
            except BaseException as error:
                failures.append(error)
                begun.set()

    measuring = threading.Thread(target=measure)
    measuring.start()
    assert begun.wait(120)
    assert not failures
    with pytest.raises(FailedPrecondition, match="model is busy"):
        client.unload("tiny")
    answer: list[int] = []

    def wait_for_an_answer() -> None:
        with Client(socket=daemon.socket) as third:
            reply = third.complete("hi", model="tiny", max_tokens=2, force=True)
            answer.append(reply.usage.completion_tokens)

    waiting = threading.Thread(target=wait_for_an_answer)
    waiting.start()
    reasons: set[str] = set()
    for status in client.watch(interval_s=0.1):
        reasons |= {request.waits_for for request in status.in_flight}
        if "measuring" in reasons:
            break
    seen.set()
    measuring.join(120)
    waiting.join(120)
    assert isinstance(failures[0], Cancelled)
    assert answer
