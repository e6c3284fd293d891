"""Many clients of one real daemon: rows join and leave, and each text is what it is alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from support.daemon_process import DaemonProcess, running_daemon, short_folder
from support.many_clients import (
    ENDLESS,
    Listener,
    complete_all,
    complete_each,
    loaded_client,
    make_slow_pack,
    wait_idle,
    wait_queued,
    wait_state,
    wait_status,
)

GREEDY = {"temperature": 0.0}
PLAIN_LAW = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_slow_pack(tmp_path_factory.mktemp("packs") / "slow")


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with short_folder() as folder, running_daemon(folder / "home") as process:
        yield process


@pytest.fixture
def client(daemon: DaemonProcess, tiny: Path) -> Iterator[Client]:
    with loaded_client(daemon, tiny) as connected:
        yield connected


def asked(tiny: Path, prompt: str, **options: Any) -> dict[str, Any]:
    """A request as `complete` takes it; stop tokens are ignored unless something else ends the text."""
    ends = {"regex", "stop"} & set(options)
    return {
        "prompt": prompt,
        "model": str(tiny),
        "force": True,
        "ignore_eos": not ends,
        "max_tokens": 24,
        **options,
    }


def mixed(tiny: Path) -> list[dict[str, Any]]:
    """Twenty requests with little in common."""
    law = {"temperature": 0.8, **PLAIN_LAW}
    settings: list[dict[str, Any]] = [
        {**GREEDY, "depth": 0},
        {**GREEDY, "depth": 1, "max_tokens": 7},
        {**GREEDY, "depth": 3, "repetition_penalty": 1.3},
        {**GREEDY, "depth": 2, "presence_penalty": 0.7, "frequency_penalty": 0.4, "max_tokens": 40},
        {**GREEDY, "depth": 2, "regex": "[a-z ]{10,30}"},
        {**GREEDY, "depth": 8, "logit_bias": {70: 3.0}},
        {**law, "depth": 2, "seed": 11},
        {**law, "depth": 0, "seed": 12, "max_tokens": 33},
        {**law, "depth": 3, "seed": 13, "reproducible": True},
        {**law, "depth": 1, "seed": 14, "top_k": 20, "reproducible": True, "max_tokens": 16},
    ]
    return [
        asked(tiny, f"Number {at}, tell me of the sea{' and the wind' * (at % 4)}.", **settings[at % 10])
        for at in range(20)
    ]


def test_twenty_streams_each_get_the_text_they_get_alone(
    daemon: DaemonProcess, client: Client, tiny: Path
) -> None:
    asks = mixed(tiny)
    alone = complete_each(client, asks)
    together = complete_all(daemon.socket, asks)
    assert [reply.tokens for reply in together] == [reply.tokens for reply in alone]
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    assert [reply.finish_reason for reply in together] == [reply.finish_reason for reply in alone]
    assert len({tuple(reply.tokens) for reply in alone}) > 10


def test_rows_join_and_leave_while_another_streams(daemon: DaemonProcess, client: Client, tiny: Path) -> None:
    long = asked(tiny, "Count the waves.", **GREEDY, depth=2, max_tokens=1000)
    guests = mixed(tiny)[:6]
    alone = complete_each(client, guests)
    whole = client.complete(**long).tokens
    stream = Listener(daemon.socket, **long)
    for guest, lone in zip(guests, alone, strict=True):
        before = len(stream.tokens)
        assert client.complete(**guest).tokens == lone.tokens
        stream.wait_tokens(before + 1)
        assert stream.final is None, "the guest came only after the stream's end"
    assert stream.end().tokens == whole


def test_a_reproducible_text_takes_turns_with_the_others(
    daemon: DaemonProcess, client: Client, tiny: Path
) -> None:
    exact = asked(
        tiny, "Say it again.", temperature=1.0, **PLAIN_LAW, seed=5, reproducible=True, max_tokens=64
    )
    alone = {depth: client.complete(**exact, depth=depth).tokens for depth in (0, 1, 3)}
    assert len(set(map(tuple, alone.values()))) == 1
    crowd = [Listener(daemon.socket, **one) for one in mixed(tiny)[:6]]
    beside = complete_all(daemon.socket, [{**exact, "depth": depth} for depth in alone])
    assert [reply.tokens for reply in beside] == list(alone.values())
    assert {reply.stats.exactness for reply in beside} == {"exact"}
    assert {one.end().outcome[0] for one in crowd} == {"length"} | {crowd[4].outcome[0]}


def test_several_answers_are_those_of_the_following_seeds(client: Client, tiny: Path) -> None:
    settings = {"temperature": 0.9, **PLAIN_LAW, "depth": 2}
    one_by_one = [
        client.complete(**asked(tiny, "What of the wind?", **settings, seed=40 + at)).tokens
        for at in range(3)
    ]
    reply = client.complete(**asked(tiny, "What of the wind?", **settings, seed=40, n=3))
    assert [choice.tokens for choice in reply.choices] == one_by_one
    assert len(set(map(tuple, one_by_one))) == 3
    for choice in reply.choices:
        assert choice.usage.prompt_tokens == reply.usage.prompt_tokens
        assert choice.usage.cached_tokens < choice.usage.prompt_tokens


def test_a_request_sent_twice_is_answered_twice(daemon: DaemonProcess, client: Client, tiny: Path) -> None:
    request = asked(tiny, "Once or twice?", temperature=0.7, **PLAIN_LAW, seed=3)
    one, other = complete_all(daemon.socket, [request] * 2)
    assert one.tokens == other.tokens == client.complete(**request).tokens


def test_fifty_streams_do_not_cross(daemon: DaemonProcess, client: Client, tiny: Path) -> None:
    asks = [
        asked(tiny, "Who am I?", temperature=1.0, **PLAIN_LAW, seed=1000 + at, max_tokens=8)
        for at in range(50)
    ]
    alone = complete_each(client, asks)
    together = complete_all(daemon.socket, asks)
    assert [reply.tokens for reply in together] == [reply.tokens for reply in alone]
    assert len({tuple(reply.tokens) for reply in alone}) == 50


def test_status_tells_rows_and_whom_they_belong_to(daemon: DaemonProcess, client: Client, slow: Path) -> None:
    streams = [
        Listener(daemon.socket, **asked(slow, f"Stream {at}.", **GREEDY, depth=1, max_tokens=ENDLESS))
        for at in range(3)
    ]
    decoding = wait_state(client, "decode", 3)
    assert len({one.client for one in decoding}) == len({one.id for one in decoding}) == 3
    status = wait_status(client, lambda now: now.engine.rows == 3)
    assert status.engine.alive
    assert not status.engine.stalled
    assert {one.priority for one in status.in_flight} == {"interactive"}
    assert all(one.prefilled + one.cached_tokens >= one.prompt_tokens - 1 for one in status.in_flight)
    for one in decoding:
        assert client.cancel(one.id)
    assert {stream.end().outcome for stream in streams} == {("cancelled", "operator")}


@pytest.fixture
def narrow(tiny: Path) -> Iterator[DaemonProcess]:
    """A daemon that decodes one request at a time."""
    with short_folder() as folder, running_daemon(folder / "home", MTPLXD_MAX_ROWS="1") as process:
        with Client(socket=process.socket) as client:
            client.load(str(tiny), force=True)
        yield process


def test_an_interactive_request_passes_background_ones(narrow: DaemonProcess, tiny: Path, slow: Path) -> None:
    with Client(socket=narrow.socket) as client:
        first = Listener(narrow.socket, **asked(slow, "I am first.", **GREEDY, max_tokens=ENDLESS))
        first.wait_tokens(1)
        background = [
            Listener(narrow.socket, **asked(tiny, f"No hurry {at}.", **GREEDY, priority="background"))
            for at in range(3)
        ]
        wait_queued(client, 3)
        urgent = Listener(narrow.socket, **asked(tiny, "Quick.", **GREEDY, priority="interactive"))
        wait_status(client, lambda now: sum(bool(one.waits_for) for one in now.in_flight) == 4)
        assert client.cancel(next(one.id for one in client.status().in_flight if one.state == "decode"))
        urgent.end()
        assert urgent.first_at < min(one.end().first_at for one in background)
        assert first.end().outcome == ("cancelled", "operator")
        wait_idle(client)


def test_a_flood_of_one_client_delays_another_by_one_request(
    narrow: DaemonProcess, tiny: Path, slow: Path
) -> None:
    with Client(socket=narrow.socket) as client, Client(socket=narrow.socket) as loud:
        first = Listener(narrow.socket, **asked(slow, "I am first.", **GREEDY, max_tokens=ENDLESS))
        first.wait_tokens(1)
        flood = [
            Listener(narrow.socket, through=loud, **asked(tiny, f"Me, me {at}!", **GREEDY)) for at in range(6)
        ]
        wait_queued(client, 6)
        quiet = Listener(narrow.socket, **asked(tiny, "May I?", **GREEDY))
        wait_queued(client, 7)
        first.leave()
        first.end()
        quiet.end()
        assert sum(one.end().first_at < quiet.first_at for one in flood) <= 1
        wait_idle(client)
