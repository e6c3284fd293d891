"""How requests of a real daemon end before their text does: cancelled, left alone, out of time, unread, too many.

Wherever it happens, nothing of the request is left and the others' texts are what they would have been.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from mtplx_client import AsyncClient, Client
from mtplx_client.errors import ResourceExhausted
from mtplx_client.generation import generate_request
from mtplx_proto.v1 import generation_pb2_grpc
from support.daemon_process import DaemonProcess, running_daemon, short_folder
from support.many_clients import (
    ENDLESS,
    Listener,
    complete_all,
    loaded_client,
    make_slow_pack,
    wait_idle,
    wait_queued,
    wait_state,
)

LONG = 1900
"""Tokens of an answer that is left before its end, or may come to it."""
WIDE = "a long way to go, " * 140
"""A prompt of about 1,800 tokens, read in many chunks."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_slow_pack(tmp_path_factory.mktemp("packs") / "slow")


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """With two rows, and small chunks, so that queue and prefill last."""
    settings = {"MTPLXD_MAX_ROWS": "2", "MTPLXD_PREFILL_CHUNK": "16"}
    with short_folder() as folder, running_daemon(folder / "home", **settings) as process:
        yield process


@pytest.fixture
def client(daemon: DaemonProcess, tiny: Path) -> Iterator[Client]:
    with loaded_client(daemon, tiny) as connected:
        yield connected


def asked(tiny: Path, prompt: str, **options: Any) -> dict[str, Any]:
    """A greedy request as `generate` takes it."""
    fixed = {"model": str(tiny), "force": True, "ignore_eos": True, "raw": True, "temperature": 0.0}
    return {"prompt": prompt, **fixed, "max_tokens": 24, "depth": 1, **options}


def open_streams(daemon: DaemonProcess, slow: Path, count: int = 1) -> list[Listener]:
    """Answers that take up rows until they are left."""
    streams = [
        Listener(daemon.socket, **asked(slow, f"Go on and on {at}", max_tokens=ENDLESS))
        for at in range(count)
    ]
    for stream in streams:
        stream.wait_tokens(1)
    return streams


def leave(streams: list[Listener]) -> None:
    for stream in streams:
        stream.leave()
    for stream in streams:
        stream.end()


def test_a_cancel_in_the_queue_ends_it_without_a_token(
    daemon: DaemonProcess, client: Client, tiny: Path, slow: Path
) -> None:
    streams = open_streams(daemon, slow, 2)
    waiting = Listener(daemon.socket, **asked(tiny, "Later"))
    [queued] = wait_queued(client)
    assert client.cancel(queued.id)
    assert waiting.end().outcome == ("cancelled", "operator")
    assert waiting.tokens == []
    assert not client.cancel(queued.id)
    leave(streams)


def test_a_cancel_in_the_prefill_ends_it_without_a_token(
    daemon: DaemonProcess, client: Client, tiny: Path, slow: Path
) -> None:
    [stream] = open_streams(daemon, slow)
    reading = Listener(daemon.socket, **asked(tiny, "Read it: " + WIDE))
    reading.wait_stage("prefill")
    [found] = wait_state(client, "prefill")
    assert client.cancel(found.id)
    assert reading.end().outcome == ("cancelled", "operator")
    assert reading.tokens == []
    assert found.prefilled < found.prompt_tokens - 1
    before = len(stream.tokens)
    stream.wait_tokens(before + 5)
    leave([stream])


def test_a_cancel_in_a_round_frees_the_row_within_a_round(
    daemon: DaemonProcess, client: Client, slow: Path
) -> None:
    [other] = open_streams(daemon, slow)
    victim = Listener(daemon.socket, **asked(slow, "Cut me short", max_tokens=ENDLESS, depth=0))
    victim.wait_tokens(10)
    chosen = min(wait_state(client, "decode", 2), key=lambda one: one.age_s)
    assert client.cancel(chosen.id)
    assert victim.end().outcome == ("cancelled", "operator")
    assert victim.final is not None
    assert victim.final.usage.completion_tokens == len(victim.tokens)
    before = len(other.tokens)
    other.wait_tokens(before + 5)
    [left] = client.status().in_flight
    assert left.id != chosen.id
    leave([other])


@pytest.mark.parametrize("place", ["queue", "prefill", "decode"])
def test_a_client_that_hangs_up_leaves_nothing(
    daemon: DaemonProcess, client: Client, tiny: Path, slow: Path, place: str
) -> None:
    streams = open_streams(daemon, slow, 2 if place == "queue" else 1)
    prompt = f"Hang up in {place} " + (WIDE if place == "prefill" else "")
    leaving = Listener(daemon.socket, **asked(tiny, prompt, max_tokens=200))
    mine = wait_queued(client) if place == "queue" else wait_state(client, place, 1 + (place == "decode"))
    assert mine
    leaving.leave()
    leaving.end()
    leave(streams)
    wait_idle(client)


@pytest.mark.parametrize("place", ["queue", "prefill", "decode"])
@pytest.mark.usefixtures("client")
def test_a_deadline_holds_everywhere(daemon: DaemonProcess, tiny: Path, slow: Path, place: str) -> None:
    streams = open_streams(daemon, slow, 2 if place == "queue" else 1)
    prompt = f"Too late in {place} " + (WIDE if place == "prefill" else "")
    late = Listener(daemon.socket, timeout=0.25, **asked(tiny, prompt, max_tokens=LONG))
    assert late.end().outcome in {("DeadlineExceeded", ""), ("cancelled", "deadline")}
    if place != "decode":
        assert late.tokens == []
    leave(streams)


def test_a_deadline_that_has_passed_costs_no_work(daemon: DaemonProcess, client: Client, tiny: Path) -> None:
    before = client.status().counters
    for at in range(10):
        late = Listener(daemon.socket, timeout=1e-6, **asked(tiny, f"Yesterday {at}")).end()
        assert late.outcome in {("DeadlineExceeded", ""), ("cancelled", "deadline")}
        assert late.tokens == []
    assert wait_idle(client).counters.rounds == before.rounds


def test_what_leaves_beside_a_text_changes_none_of_it(
    daemon: DaemonProcess, client: Client, tiny: Path
) -> None:
    request = asked(tiny, "Steady as she goes", max_tokens=300, depth=2)
    alone = client.complete(**request).tokens
    stream = Listener(daemon.socket, **request)
    for at in range(8):
        guest = Listener(daemon.socket, **asked(tiny, f"Passing by {at}", max_tokens=LONG, depth=at % 4))
        guest.wait_tokens(1 + at)
        guest.leave()
        guest.end()
    assert stream.end().tokens == alone


def test_a_client_that_never_reads_hinders_nobody(daemon: DaemonProcess, client: Client, tiny: Path) -> None:
    options = asked(tiny, "Nobody listens", max_tokens=LONG)
    request = generate_request(options.pop("prompt"), options)  # type: ignore[arg-type]
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        unread = generation_pb2_grpc.GenerationStub(channel).Generate(request)
        wait_state(client, "decode")
        asks = [asked(tiny, f"I read {at}") for at in range(3)]
        assert all(reply.finish_reason == "length" for reply in complete_all(daemon.socket, asks))
        unread.cancel()


def test_two_hundred_that_connect_and_drop_leave_nothing(client: Client, tiny: Path) -> None:
    for at in range(200):
        stream = client.generate(**asked(tiny, f"Drop {at}", max_tokens=LONG))
        next(stream)
        stream.close()
    wait_idle(client)
    assert client.complete(**asked(tiny, "Still there?")).finish_reason == "length"


def test_a_thousand_tiny_requests_at_once_are_served_or_refused(
    daemon: DaemonProcess, client: Client, tiny: Path
) -> None:
    request = asked(tiny, "x", max_tokens=1)
    prompt = request.pop("prompt")

    async def flood() -> tuple[Counter[str], str]:
        async with AsyncClient(socket=daemon.socket) as loud, AsyncClient(socket=daemon.socket) as calm:

            async def one() -> str:
                try:
                    return (await loud.complete(prompt, **request)).finish_reason
                except ResourceExhausted as error:
                    return "refused" if error.retry_after_s else "refused without a time to come back"

            ends = asyncio.gather(*(one() for _ in range(1000)))
            quiet = await calm.complete(prompt, **request)
            return Counter(await ends), quiet.finish_reason

    ends, quiet = asyncio.run(flood())
    assert set(ends) <= {"length", "refused"}
    assert ends["length"] > 0
    assert ends.total() == 1000
    assert quiet == "length"
    wait_idle(client)
